#!/bin/sh
# Open MPI's remote shell for the other namespace: enter_namespace.sh HOST COMMAND...
# runs COMMAND in $FARVERBS_APPS_CLIENT, under a host name of its own.
shift
exec nsenter --net="/run/netns/$FARVERBS_APPS_CLIENT" unshare --uts \
  sh -c 'hostname fvclient && exec sh -c "$0"' "$*"
