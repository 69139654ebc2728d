// Address handles: ibv_create_ah(3), ibv_create_ah_from_wc(3), ibv_init_ah_from_wc(3).
#include "farverbs/abi/ibverbs/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "farverbs/abi/ibverbs/attributes.h"
#include "farverbs/abi/ibverbs/devices.h"
#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/versions.h"
#include "farverbs/wire/frame.h"
#include "farverbs/wire/network_headers.h"

namespace farverbs::abi {
namespace {

// Programs that know InfiniBand only ask for 0 or 1 hops; over IP that ends at the first router, so
// such a wish counts as none, as it does with other RoCE stacks.
constexpr uint8_t kDefaultHopLimit = 64;

// Headers where a GRH would be (annex A17): IPv6, or 20 bytes of nothing and IPv4, which has a
// right checksum.
struct ReceivedHeader {
  Gid source{};
  Gid destination{};
  uint8_t traffic_class = 0;
  uint32_t flow_label = 0;
};

ReceivedHeader read_header(const ibv_grh& grh) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&grh);
  ReceivedHeader header;
  const std::span<const std::byte> v4{bytes + 20, wire::Ipv4Header::kSize};
  const bool starts_as_v4 = (std::to_integer<unsigned>(v4[0]) >> 4) == 4;
  if (starts_as_v4 && wire::ipv4_checksum(v4) == 0) {
    const auto word = [&](size_t at) {
      uint32_t value;
      std::memcpy(&value, v4.data() + at, sizeof value);
      return ntohl(value);
    };
    header.source = IpAddress::v4(word(12)).to_gid();
    header.destination = IpAddress::v4(word(16)).to_gid();
    header.traffic_class = std::to_integer<uint8_t>(v4[1]);
    return header;
  }
  const uint32_t first = ntohl(grh.version_tclass_flow);
  std::memcpy(header.source.data(), grh.sgid.raw, header.source.size());
  std::memcpy(header.destination.data(), grh.dgid.raw, header.destination.size());
  header.traffic_class = static_cast<uint8_t>(first >> 20);
  header.flow_label = first & 0xF'FFFF;
  return header;
}

// Looks at the interface: an address may have gone since the device was bound to it.
Result<void> expect_present(Context& context, uint8_t index) {
  FV_ASSIGN(const std::vector<GidEntry> gids, gids_of(*context.owner));
  if (index < gids.size() && gids[index].present) return {};
  return invalid("ah_attr.grh.sgid_index is " + std::to_string(index) +
                 ", whose address has been taken off the interface");
}

}  // namespace

Result<model::AddressVector> to_vector(Context& context, const ibv_ah_attr& attr) {
  if (attr.is_global == 0) {
    return invalid(
        "ah_attr.is_global is 0; on an Ethernet port a destination is a GID (give a GID "
        "index: -g or -x of most programs)");
  }
  if (attr.grh.sgid_index >= kGidTableLength) {
    return invalid("ah_attr.grh.sgid_index is " + std::to_string(attr.grh.sgid_index) +
                   ", the GID table has " + std::to_string(kGidTableLength) + " entries");
  }
  if (attr.port_num != 1) {
    return invalid("ah_attr.port_num must be 1, got " + std::to_string(attr.port_num));
  }
  model::AddressVector vector;
  std::memcpy(vector.destination_gid.data(), attr.grh.dgid.raw, vector.destination_gid.size());
  if (IpAddress::from_gid(vector.destination_gid).is_unspecified()) {
    return invalid("ah_attr.grh.dgid is no address");
  }
  FV_TRY(use_gid(context, attr.grh.sgid_index));
  {
    const std::lock_guard lock(context.owner->mutex);
    const IpAddress& own = context.owner->gids[attr.grh.sgid_index].address;
    if (!same_family(own, IpAddress::from_gid(vector.destination_gid))) {
      return invalid("ah_attr.grh.sgid_index " + std::to_string(attr.grh.sgid_index) + " is " +
                     own.to_string() + ", of another IP version than dgid");
    }
  }
  vector.source_gid_index = attr.grh.sgid_index;
  vector.hop_limit = attr.grh.hop_limit <= 1 ? kDefaultHopLimit : attr.grh.hop_limit;
  vector.traffic_class = attr.grh.traffic_class;
  vector.flow_label = attr.grh.flow_label & 0xF'FFFF;
  vector.service_level = attr.sl & 15;
  vector.port_number = attr.port_num;
  return vector;
}

ibv_ah_attr to_public(const model::AddressVector& vector) {
  ibv_ah_attr attr{};
  std::memcpy(attr.grh.dgid.raw, vector.destination_gid.data(), sizeof attr.grh.dgid.raw);
  attr.grh.flow_label = vector.flow_label;
  attr.grh.sgid_index = vector.source_gid_index;
  attr.grh.hop_limit = vector.hop_limit;
  attr.grh.traffic_class = vector.traffic_class;
  attr.sl = vector.service_level;
  attr.is_global = 1;
  attr.port_num = vector.port_number;
  return attr;
}

}  // namespace farverbs::abi

using namespace farverbs;
using namespace farverbs::abi;

extern "C" {

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (!is_alive(Kind::kPd, pd) || attr == nullptr) {
    return refuse_null("ibv_create_ah", invalid("pd is not alive, or attr is missing"));
  }
  auto vector = to_vector(*of(pd).owner, *attr);
  if (!vector.ok()) return refuse_null("ibv_create_ah", vector.error());
  const auto present = expect_present(*of(pd).owner, vector->source_gid_index);
  if (!present.ok()) return refuse_null("ibv_create_ah", present.error());
  auto* ah = new Ah;
  ah->context = pd->context;
  ah->pd = pd;
  ah->owner = of(pd).owner;
  ah->vector = *vector;
  ++of(pd).users;
  add_handle(Kind::kAh, static_cast<ibv_ah*>(ah));
  return ah;
}

int ibv_destroy_ah(ibv_ah* ah) {
  if (!remove_handle(Kind::kAh, ah)) return refuse("ibv_destroy_ah", invalid("ah is not alive"));
  --of(ah->pd).users;
  delete &of(ah);
  return 0;
}

int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                        ibv_ah_attr* attr) {
  const auto fail = [](const Error& error) {
    errno = refuse("ibv_init_ah_from_wc", error);
    return -1;
  };
  if (!is_alive(Kind::kContext, context)) return fail(invalid("context is not alive"));
  if (wc == nullptr || attr == nullptr) return fail(invalid("wc or attr is missing"));
  if (port != 1) return fail(invalid("port_num must be 1, got " + std::to_string(port)));
  if ((wc->wc_flags & IBV_WC_GRH) == 0 || grh == nullptr) {
    return fail(invalid("without a GRH nobody knows who sent it"));
  }
  const ReceivedHeader header = read_header(*grh);
  const auto table = gid_table(of(context));
  if (!table.ok()) return fail(table.error());
  const auto own = std::find_if(table->begin(), table->end(), [&](const ibv_gid_entry& entry) {
    return std::memcmp(entry.gid.raw, header.destination.data(), sizeof entry.gid.raw) == 0;
  });
  *attr = {};
  std::memcpy(attr->grh.dgid.raw, header.source.data(), sizeof attr->grh.dgid.raw);
  // A multicast datagram was sent to no address of ours: the answer comes from the first.
  attr->grh.sgid_index = own == table->end() ? 0 : static_cast<uint8_t>(own->gid_index);
  attr->grh.flow_label = header.flow_label;
  attr->grh.traffic_class = header.traffic_class;
  attr->grh.hop_limit = 0xFF;
  attr->is_global = 1;
  attr->port_num = port;
  // wc->sl tells the kind of header on Ethernet; as a service level it would name a traffic class.
  return 0;
}

ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  if (!is_alive(Kind::kPd, pd)) {
    return refuse_null("ibv_create_ah_from_wc", invalid("pd is not alive"));
  }
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}

int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) {
  // Of use to drivers of hardware that writes Ethernet headers itself.
  errno = refuse("ibv_resolve_eth_l2_from_gid",
                 Error{EOPNOTSUPP, "the kernel's UDP writes the Ethernet header"});
  return -1;
}

}  // extern "C"

FV_DEFAULT_VERSION(ibv_create_ah);
FV_DEFAULT_VERSION(ibv_destroy_ah);
