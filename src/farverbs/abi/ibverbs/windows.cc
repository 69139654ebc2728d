// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3).
#include "farverbs/abi/ibverbs/windows.h"

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/requests.h"

namespace farverbs::abi {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (!is_alive(Kind::kPd, pd)) return refuse_null("ibv_alloc_mw", invalid("pd is not alive"));
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    return refuse_null("ibv_alloc_mw", invalid("type must be 1 or 2"));
  }
  auto window = of(pd).domain->allocate_window(type == IBV_MW_TYPE_2, true);
  if (!window.ok()) return refuse_null("ibv_alloc_mw", window.error());
  auto* mw = new Mw;
  mw->context = pd->context;
  mw->pd = pd;
  mw->type = type;
  mw->owner = of(pd).owner;
  mw->window = std::make_unique<verbs::MemoryWindow>(std::move(*window));
  mw->rkey = mw->window->handle_key().value();
  mw->handle = mw->rkey;
  ++of(pd).users;
  add_handle(Kind::kMw, static_cast<ibv_mw*>(mw));
  return mw;
}

int dealloc_mw(ibv_mw* mw) {
  if (!remove_handle(Kind::kMw, mw)) return refuse("ibv_dealloc_mw", invalid("mw is not alive"));
  --of(mw->pd).users;
  delete &of(mw);
  return 0;
}

int translate_bind(ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info,
                   verbs::SendWorkRequest& to) {
  if (mw == nullptr || (info.mr == nullptr && info.length != 0)) return EINVAL;
  to.opcode = verbs::SendOpcode::kBindWindow;
  to.window = of(mw).window->entry();
  to.remote_key = MemoryKey(rkey);
  to.bind_region_lkey = MemoryKey(info.mr != nullptr ? info.mr->lkey : 0);
  to.bind_address = info.addr;
  to.bind_length = info.length;
  // Local rights are nothing that a window could give; some programs name them all the same.
  to.bind_access = info.mw_access_flags & ~static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE);
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  if (!is_alive(Kind::kQp, qp) || !is_alive(Kind::kMw, mw) || bind == nullptr) {
    return refuse("ibv_bind_mw", invalid("qp or mw is not alive, or mw_bind is missing"));
  }
  if (mw->type != IBV_MW_TYPE_1) {
    return refuse("ibv_bind_mw", invalid("a type 2 window is bound by ibv_post_send"));
  }
  const uint32_t key = ibv_inc_rkey(mw->rkey);
  verbs::SendWorkRequest request;
  if (const int code = translate_bind(mw, key, bind->bind_info, request); code != 0) return code;
  request.wr_id = bind->wr_id;
  request.flags = bind->send_flags;
  if (auto posted = of(qp).pair->post_send(request); !posted.ok()) {
    return refuse("ibv_bind_mw", posted.error());
  }
  mw->rkey = key;
  return 0;
}

}  // namespace farverbs::abi
