// Extended completion queues: ibv_create_cq_ex(3). A completion is read field by field; its time is
// that of its push, in nanoseconds of the soft NIC's clock.
#include <ctime>

#include "farverbs/abi/ibverbs/completions.h"
#include "farverbs/abi/ibverbs/cq.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::abi {
namespace {

constexpr uint64_t kOfferedFields = uint64_t{IBV_WC_STANDARD_FLAGS} |
                                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
                                    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint32_t kKnownFlags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

void show(Cq& cq) {
  cq.status = static_cast<ibv_wc_status>(cq.read.status);
  cq.wr_id = cq.read.wr_id;
}

// Between start_poll, when it found something, and end_poll the queue is this thread's.
int start_poll(ibv_cq_ex* shown, ibv_poll_cq_attr* attr) {
  if (attr != nullptr && attr->comp_mask != 0) return EINVAL;
  Cq& cq = of(shown);
  if (!cq.single_threaded) cq.poll_mutex.lock();
  if (cq.queue->poll({&cq.read, 1}) == 1) {
    show(cq);
    return 0;
  }
  if (!cq.single_threaded) cq.poll_mutex.unlock();
  return cq.queue->in_error() ? EIO : ENOENT;
}

int next_poll(ibv_cq_ex* shown) {
  Cq& cq = of(shown);
  if (cq.queue->take({&cq.read, 1}) == 0) return ENOENT;
  show(cq);
  return 0;
}

void end_poll(ibv_cq_ex* shown) {
  if (!of(shown).single_threaded) of(shown).poll_mutex.unlock();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) { return to_public(of(cq).read.opcode); }
uint32_t read_vendor_err(ibv_cq_ex* cq) { return of(cq).read.vendor_error; }
uint32_t read_byte_len(ibv_cq_ex* cq) { return of(cq).read.byte_length; }
__be32 read_imm_data(ibv_cq_ex* cq) { return public_immediate(of(cq).read); }
uint32_t read_qp_num(ibv_cq_ex* cq) { return of(cq).read.qpn.value(); }
uint32_t read_src_qp(ibv_cq_ex* cq) { return of(cq).read.source_qpn.value(); }
unsigned read_wc_flags(ibv_cq_ex* cq) { return public_flags(of(cq).read); }
uint32_t read_slid(ibv_cq_ex*) { return 0; }
uint8_t read_sl(ibv_cq_ex* cq) { return public_service_level(of(cq).read); }
uint8_t read_dlid_path_bits(ibv_cq_ex*) { return 0; }
uint64_t read_completion_ts(ibv_cq_ex* cq) { return static_cast<uint64_t>(of(cq).read.time.ns()); }

uint64_t read_completion_wallclock_ns(ibv_cq_ex* cq) {
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  const int64_t now = wall.tv_sec * INT64_C(1'000'000'000) + wall.tv_nsec;
  return static_cast<uint64_t>(now - (io::os_now() - of(cq).read.time).ns());
}

Result<Cq*> make(ibv_context* context, const ibv_cq_init_attr_ex& init) {
  constexpr uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((init.comp_mask & ~kKnownMask) != 0) return invalid("comp_mask has unknown bits");
  if ((init.wc_flags & ~kOfferedFields) != 0) {
    return Error{EOPNOTSUPP, "wc_flags asks for fields that are not offered"};
  }
  const uint32_t flags = (init.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 ? init.flags : 0;
  if ((flags & ~kKnownFlags) != 0) return Error{EOPNOTSUPP, "flags has unknown bits"};
  if ((init.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
      !is_alive(Kind::kPd, init.parent_domain)) {
    return invalid("parent_domain is not alive");
  }
  FV_ASSIGN(Cq * cq, create_cq(context, init.cqe, init.cq_context, init.channel, init.comp_vector));
  cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  constexpr uint64_t kStamps =
      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  if ((init.wc_flags & kStamps) != 0) cq->queue->stamp_completions();
  return cq;
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  if (init == nullptr) return refuse_null("ibv_create_cq_ex", invalid("cq_attr is null"));
  auto made = make(context, *init);
  if (!made.ok()) return refuse_null("ibv_create_cq_ex", made.error());
  Cq& cq = **made;
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_err;
  // Which of these may be called is what wc_flags asked for; the others do no harm.
  cq.read_byte_len = read_byte_len;
  cq.read_imm_data = read_imm_data;
  cq.read_qp_num = read_qp_num;
  cq.read_src_qp = read_src_qp;
  cq.read_wc_flags = read_wc_flags;
  cq.read_slid = read_slid;
  cq.read_sl = read_sl;
  cq.read_dlid_path_bits = read_dlid_path_bits;
  cq.read_completion_ts = read_completion_ts;
  cq.read_completion_wallclock_ns = read_completion_wallclock_ns;
  return &cq;
}

// The clock of completion times, in the place where other devices put their cycle counters.
int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  if (values == nullptr || !is_alive(Kind::kContext, context)) return EINVAL;
  if ((values->comp_mask & ~static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) {
    return EOPNOTSUPP;
  }
  if (values->comp_mask != 0) {
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = io::os_now().ns();
  }
  return 0;
}

}  // namespace farverbs::abi
