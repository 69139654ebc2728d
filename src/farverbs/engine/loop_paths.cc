// The loop's paths: which QP shares what with whom, and what is remembered of a peer.
#include "farverbs/cc/bdp_window.h"
#include "farverbs/cc/fixed_window.h"
#include "farverbs/cc/ledbat.h"
#include "farverbs/engine/loop.h"

namespace farverbs::engine {
namespace {

// Paths without a connected QP (to UD destinations) that are kept for the next datagram.
constexpr size_t kIdlePaths = 1024;
// Addresses whose rate and round trip are remembered after the last QP has gone.
constexpr size_t kRememberedPaths = 1024;

}  // namespace

std::unique_ptr<cc::Controller> Loop::new_controller() const {
  if (config_.fixed_window_bytes != 0) {
    return std::make_unique<cc::FixedWindow>(config_.fixed_window_bytes);
  }
  return std::make_unique<cc::BdpWindow>(cc::BdpWindowConfig{});
}

void Loop::remember(const Path& path) {
  // What the background class learned is what others left to it.
  if (path.far_controller == nullptr || path.line->background) return;
  const auto learned = path.far_controller->remember();
  if (!learned.has_value()) return;
  if (remembered_.size() >= kRememberedPaths) remembered_.clear();
  remembered_[path.flow.destination.address] = *learned;
}

std::shared_ptr<FarLine> Loop::line_for(const Endpoint& destination, bool background) {
  std::weak_ptr<FarLine>& known_line = lines_[{destination, background}];
  if (std::shared_ptr<FarLine> line = known_line.lock()) return line;
  std::unique_ptr<cc::Controller> controller;
  const cc::FarController* for_tools = nullptr;
  const cc::PathControl* chooser = nullptr;
  cc::FarConfig far_config;
  const auto known = remembered_.find(destination.address);
  if (known != remembered_.end()) far_config.remembered = known->second;
  if (config_.fixed_window_bytes != 0) {
    controller = new_controller();
  } else if (background) {
    auto ledbat = std::make_unique<cc::Ledbat>(far_config);
    for_tools = &ledbat->core();
    controller = std::move(ledbat);
  } else {
    auto control = std::make_unique<cc::PathControl>(far_config, config_.far_control);
    chooser = control.get();
    for_tools = &control->far();
    controller = std::move(control);
  }
  // The ceiling is for the port's first address; an IPv6 header is 20 bytes longer.
  const uint32_t longer = port_.local().address.is_v4() && destination.address.is_v6() ? 20 : 0;
  auto line = std::make_shared<FarLine>(destination, background, std::move(controller), for_tools,
                                        chooser, config_.datagram_ceiling - longer);
  known_line = line;
  return line;
}

Path& Loop::path_for(const model::AddressVector& av, bool far) {
  const model::TrafficClass traffic = model::class_of(av);
  io::TxFlow flow;
  flow.destination = {IpAddress::from_gid(av.destination_gid), av.udp_port};
  flow.traffic_class = av.traffic_class;
  if (far) {
    // Marks of others come back to the controller; standard RC has nobody to tell.
    const uint8_t octet = model::marked(av.traffic_class, traffic);
    flow.traffic_class = static_cast<uint8_t>((octet & ~model::kEcnMask) | model::kEcnCapable);
  }
  flow.hop_limit = av.hop_limit;
  // Datagrams of UD name one each; what the port does not have goes from its first address.
  flow.source = port_.has_source(av.source_gid_index) ? av.source_gid_index : uint8_t{0};
  const PathKey key{flow, traffic};
  auto found = paths_.find(key);
  if (found != paths_.end()) return *found->second;
  if (paths_.size() >= kIdlePaths) {
    std::erase_if(paths_, [&](const auto& entry) {
      const Path& path = *entry.second;
      return path.users == 0 && &path != burst_path_ && !path.paced_link.linked();
    });
    std::erase_if(lines_, [](const auto& entry) { return entry.second.expired(); });
  }
  // Of another IP version than the destination, the port sends nothing: all is lost on the way.
  const Endpoint own = port_.local_at(flow.source);
  const Endpoint& from =
      same_family(own.address, flow.destination.address) ? own : flow.destination;
  auto path = std::make_unique<Path>(
      flow, traffic, wire::IcrcFlow::roce_v2(from, flow.destination), new_controller(),
      new_controller(), line_for(flow.destination, traffic == model::TrafficClass::kBackground));
  return *paths_.emplace(key, std::move(path)).first->second;
}

void Loop::leave_path(LoopQp& qp) {
  if (qp.path == nullptr) return;
  TurnList::remove_if_linked(qp);
  Path& path = *qp.path;
  forget_woken(qp);
  note_demand(qp, false);
  qp.waits = false;
  qp.path = nullptr;
  wake_waiting(path);
  if (--path.users > 0) return;
  // The last QP to this peer takes what the path has learned with it.
  if (burst_path_ == &path) {
    burst_.clear();
    port_blocked_ = false;
    burst_path_ = nullptr;
  }
  if (path.paced_link.linked()) paced_.remove(path);
  remember(path);
  const bool last = path.line.use_count() == 1;
  const std::pair<Endpoint, bool> line{path.line->destination, path.line->background};
  const bool renamed = path.line->renamed;
  paths_.erase(PathKey{path.flow, path.traffic});
  if (last) lines_.erase(line);
  if (last && renamed) std::erase_if(lines_, [](const auto& l) { return l.second.expired(); });
}

// Also when a QP changed over to the far transport: its packets bear other marks from here on.
// Another port of the same address is another entry of a translator before the same line, which
// keeps what was learned. Another address is another line.
void Loop::follow(LoopQp& qp) {
  std::shared_ptr<FarLine> line = qp.path->line;
  const model::AddressVector& av = *qp.pair.next_flow();
  const Endpoint to{IpAddress::from_gid(av.destination_gid), av.udp_port};
  std::weak_ptr<FarLine>& known = lines_[{to, line->background}];
  if (to.address == line->destination.address && known.expired()) {
    known = line;
    line->renamed = true;
  }
  leave_path(qp);
  qp.path = &path_for(av, true);
  ++qp.path->users;
  line.reset();
  std::erase_if(lines_, [](const auto& l) { return l.second.expired(); });
}

}  // namespace farverbs::engine
