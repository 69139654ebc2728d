// Address handle attributes (man ibv_create_ah(3)) and address vectors of the verbs room.
#pragma once

#include "farverbs/abi/ibverbs/objects.h"

namespace farverbs::abi {

// EINVAL if the attributes name no destination that an Ethernet port can reach.
Result<model::AddressVector> to_vector(Context& context, const ibv_ah_attr& attr);
ibv_ah_attr to_public(const model::AddressVector& vector);

}  // namespace farverbs::abi
