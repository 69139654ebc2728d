// The public structs are what programs that were built against rdma-core 44 take them for.
#include <rdma/rdma_cma.h>

#include <cstddef>

static_assert(sizeof(rdma_cm_id) == 416);
static_assert(offsetof(rdma_cm_id, qp) == 24);
static_assert(offsetof(rdma_cm_id, route) == 32);
static_assert(offsetof(rdma_cm_id, ps) == 344);
static_assert(offsetof(rdma_cm_id, event) == 352);
static_assert(offsetof(rdma_cm_id, qp_type) == 408);
static_assert(sizeof(rdma_cm_event) == 80);
static_assert(sizeof(rdma_conn_param) == 24);
static_assert(sizeof(rdma_addrinfo) == 96);
static_assert(sizeof(rdma_event_channel) == 4);
static_assert(sizeof(rdma_route) == 312);
