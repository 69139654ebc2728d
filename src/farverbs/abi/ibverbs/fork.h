// What a fork does to soft NICs: their threads exist in the parent only, and their sockets must be
// the parent's alone, or the kernel would go on to deliver to them when the parent has closed them.
#pragma once

namespace farverbs::abi {

// Once per process, before the first soft NIC.
void prepare_for_forks();

}  // namespace farverbs::abi
