// The names of rsockets (rsocket(7)), which this library does not offer yet: they refuse with
// ENOSYS.
#include <poll.h>
#include <rdma/rsocket.h>

#include <cerrno>

#include "farverbs/abi/rdmacm/library.h"

using farverbs::rdmacm::fail;

extern "C" {

int rsocket(int, int, int) { return fail(ENOSYS); }
int rbind(int, const sockaddr*, socklen_t) { return fail(ENOSYS); }
int rlisten(int, int) { return fail(ENOSYS); }
int raccept(int, sockaddr*, socklen_t*) { return fail(ENOSYS); }
int rconnect(int, const sockaddr*, socklen_t) { return fail(ENOSYS); }
int rshutdown(int, int) { return fail(ENOSYS); }
int rclose(int) { return fail(ENOSYS); }
ssize_t rrecv(int, void*, size_t, int) { return fail(ENOSYS); }
ssize_t rrecvfrom(int, void*, size_t, int, sockaddr*, socklen_t*) { return fail(ENOSYS); }
ssize_t rrecvmsg(int, msghdr*, int) { return fail(ENOSYS); }
ssize_t rsend(int, const void*, size_t, int) { return fail(ENOSYS); }
ssize_t rsendto(int, const void*, size_t, int, const sockaddr*, socklen_t) { return fail(ENOSYS); }
ssize_t rsendmsg(int, const msghdr*, int) { return fail(ENOSYS); }
ssize_t rread(int, void*, size_t) { return fail(ENOSYS); }
ssize_t rreadv(int, const iovec*, int) { return fail(ENOSYS); }
ssize_t rwrite(int, const void*, size_t) { return fail(ENOSYS); }
ssize_t rwritev(int, const iovec*, int) { return fail(ENOSYS); }
int rpoll(pollfd*, nfds_t, int) { return fail(ENOSYS); }
int rselect(int, fd_set*, fd_set*, fd_set*, timeval*) { return fail(ENOSYS); }
int rgetpeername(int, sockaddr*, socklen_t*) { return fail(ENOSYS); }
int rgetsockname(int, sockaddr*, socklen_t*) { return fail(ENOSYS); }
int rsetsockopt(int, int, int, const void*, socklen_t) { return fail(ENOSYS); }
int rgetsockopt(int, int, int, void*, socklen_t*) { return fail(ENOSYS); }
int rfcntl(int, int, ...) { return fail(ENOSYS); }
off_t riomap(int, void*, size_t, int, int, off_t) { return fail(ENOSYS); }
int riounmap(int, void*, size_t) { return fail(ENOSYS); }
size_t riowrite(int, const void*, size_t, off_t, int) { return static_cast<size_t>(fail(ENOSYS)); }

}  // extern "C"
