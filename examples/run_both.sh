#!/bin/sh
# run_both.sh PROGRAM: runs `PROGRAM server PORT` and `PROGRAM client 127.0.0.1 PORT` and succeeds if
# both do.
set -eu
program=$1
port=$((20000 + $$ % 10000))
"$program" server "$port" &
server=$!
trap 'kill "$server" 2>/dev/null || true' EXIT
tries=0
# The client fails at once while the server is not listening yet.
until "$program" client 127.0.0.1 "$port"; do
  tries=$((tries + 1))
  [ "$tries" -lt 20 ] || exit 1
  kill -0 "$server" || exit 1
  sleep 0.1
done
wait "$server"
trap - EXIT
