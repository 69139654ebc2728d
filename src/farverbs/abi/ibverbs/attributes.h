// What devices and ports say of themselves, for the calls of libibverbs and for the operations of a
// context. The calls give errno values.
#pragma once

#include <optional>
#include <vector>

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

int query_device(ibv_context* context, ibv_device_attr& attr);
// Both write `size` bytes at most, and zeros where they know less than the caller.
int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t attr_size);
int query_port(ibv_context* context, uint8_t number, ibv_port_attr* attr, size_t size);

// The used entries, by index.
Result<std::vector<ibv_gid_entry>> gid_table(const Context& context);
Result<std::optional<ibv_gid_entry>> gid_at(const Context& context, uint32_t index);

}  // namespace farverbs::abi
