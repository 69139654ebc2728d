// The private interface between libibverbs and its providers (version node IBVERBS_PRIVATE_34). The
// provider libraries that programs link directly (libmlx5, libefa) are bound to all of it when they
// are loaded, so every name must be here; none of them ever drives a soft NIC.
#include <cerrno>

// Without prototypes on purpose: callers pass what they will, and get an error.
#define STUB(name) \
  int name() { return ENOSYS; }

extern "C" {

STUB(__ioctl_final_num_attrs)
STUB(execute_ioctl)
STUB(ibv_cmd_advise_mr)
STUB(ibv_cmd_alloc_dm)
STUB(ibv_cmd_alloc_mw)
STUB(ibv_cmd_alloc_pd)
STUB(ibv_cmd_attach_mcast)
STUB(ibv_cmd_close_xrcd)
STUB(ibv_cmd_create_ah)
STUB(ibv_cmd_create_counters)
STUB(ibv_cmd_create_cq)
STUB(ibv_cmd_create_cq_ex)
STUB(ibv_cmd_create_flow)
STUB(ibv_cmd_create_flow_action_esp)
STUB(ibv_cmd_create_qp)
STUB(ibv_cmd_create_qp_ex2)
STUB(ibv_cmd_create_qp_ex)
STUB(ibv_cmd_create_rwq_ind_table)
STUB(ibv_cmd_create_srq)
STUB(ibv_cmd_create_srq_ex)
STUB(ibv_cmd_create_wq)
STUB(ibv_cmd_dealloc_mw)
STUB(ibv_cmd_dealloc_pd)
STUB(ibv_cmd_dereg_mr)
STUB(ibv_cmd_destroy_ah)
STUB(ibv_cmd_destroy_counters)
STUB(ibv_cmd_destroy_cq)
STUB(ibv_cmd_destroy_flow)
STUB(ibv_cmd_destroy_flow_action)
STUB(ibv_cmd_destroy_qp)
STUB(ibv_cmd_destroy_rwq_ind_table)
STUB(ibv_cmd_destroy_srq)
STUB(ibv_cmd_destroy_wq)
STUB(ibv_cmd_detach_mcast)
STUB(ibv_cmd_free_dm)
STUB(ibv_cmd_get_context)
STUB(ibv_cmd_modify_cq)
STUB(ibv_cmd_modify_flow_action_esp)
STUB(ibv_cmd_modify_qp)
STUB(ibv_cmd_modify_qp_ex)
STUB(ibv_cmd_modify_srq)
STUB(ibv_cmd_modify_wq)
STUB(ibv_cmd_open_qp)
STUB(ibv_cmd_open_xrcd)
STUB(ibv_cmd_poll_cq)
STUB(ibv_cmd_post_recv)
STUB(ibv_cmd_post_send)
STUB(ibv_cmd_post_srq_recv)
STUB(ibv_cmd_query_context)
STUB(ibv_cmd_query_device_any)
STUB(ibv_cmd_query_mr)
STUB(ibv_cmd_query_port)
STUB(ibv_cmd_query_qp)
STUB(ibv_cmd_query_srq)
STUB(ibv_cmd_read_counters)
STUB(ibv_cmd_reg_dm_mr)
STUB(ibv_cmd_reg_dmabuf_mr)
STUB(ibv_cmd_reg_mr)
STUB(ibv_cmd_req_notify_cq)
STUB(ibv_cmd_rereg_mr)
STUB(ibv_cmd_resize_cq)

// Whether the kernel lets objects go with their device: an object of one byte, not a function.
extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

void __verbs_log(void*, unsigned, const char*, ...) {}
// A provider offers itself; there is no hardware to drive.
void verbs_register_driver_34(const void*) {}
void verbs_set_ops(void*, const void*) {}
void verbs_init_cq(void*, void*, void*, void*) {}
void verbs_uninit_context(void*) {}

void* _verbs_init_and_alloc_context(void*, int, unsigned long, void*, unsigned) {
  errno = ENOSYS;
  return nullptr;
}

void* verbs_open_device(void*, void*) {
  errno = ENOSYS;
  return nullptr;
}

int ibv_read_ibdev_sysfs_file(char*, unsigned long, void*, const char*, ...) {
  errno = ENOSYS;
  return -1;
}

int ibv_read_sysfs_file(const char*, const char*, char*, unsigned long) {
  errno = ENOENT;
  return -1;
}

void register_driver(const char*, void*) {}
__asm__(".symver register_driver, ibv_register_driver@IBVERBS_1.1");

}  // extern "C"
