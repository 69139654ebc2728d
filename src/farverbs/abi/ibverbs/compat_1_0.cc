// The interface of 2006 (version node IBVERBS_1.0), whose structs had other layouts. Programs that
// are linked to it find no device, and a call that needs one fails.
#include <cerrno>

#define OF_1_0(name) __asm__(".symver old_" #name ", " #name "@IBVERBS_1.0")
#define REFUSED_POINTER(name) \
  void* old_##name() {        \
    errno = ENOSYS;           \
    return nullptr;           \
  }                           \
  OF_1_0(name)
#define REFUSED(name)                 \
  int old_##name() { return ENOSYS; } \
  OF_1_0(name)
#define NOTHING(name)  \
  void old_##name() {} \
  OF_1_0(name)

extern "C" {

// An empty list, which is no error.
void** old_ibv_get_device_list(int* num_devices) {
  static void* none[1] = {};
  if (num_devices != nullptr) *num_devices = 0;
  return none;
}
OF_1_0(ibv_get_device_list);

unsigned long old_ibv_get_device_guid() { return 0; }
OF_1_0(ibv_get_device_guid);

NOTHING(ibv_ack_async_event);
NOTHING(ibv_ack_cq_events);
REFUSED_POINTER(ibv_alloc_pd);
REFUSED(ibv_attach_mcast);
REFUSED(ibv_close_device);
REFUSED_POINTER(ibv_create_ah);
REFUSED_POINTER(ibv_create_cq);
REFUSED_POINTER(ibv_create_qp);
REFUSED_POINTER(ibv_create_srq);
REFUSED(ibv_dealloc_pd);
REFUSED(ibv_dereg_mr);
REFUSED(ibv_destroy_ah);
REFUSED(ibv_destroy_cq);
REFUSED(ibv_destroy_qp);
REFUSED(ibv_destroy_srq);
REFUSED(ibv_detach_mcast);
NOTHING(ibv_free_device_list);
REFUSED(ibv_get_async_event);
REFUSED(ibv_get_cq_event);
REFUSED_POINTER(ibv_get_device_name);
REFUSED(ibv_modify_qp);
REFUSED(ibv_modify_srq);
REFUSED_POINTER(ibv_open_device);
REFUSED(ibv_query_device);
REFUSED(ibv_query_gid);
REFUSED(ibv_query_pkey);
REFUSED(ibv_query_port);
REFUSED(ibv_query_qp);
REFUSED(ibv_query_srq);
REFUSED_POINTER(ibv_reg_mr);
REFUSED(ibv_resize_cq);

}  // extern "C"
