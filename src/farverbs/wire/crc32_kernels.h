// The CRC kernels by instruction set, for crc32.cc's choice. Everyone else includes crc32.h.
#pragma once

#include "farverbs/wire/crc32.h"

namespace farverbs::wire {

extern const Crc32Kernel kCrc32Isal;
#if defined(__x86_64__)
extern const Crc32Kernel kCrc32Sse;     // needs pclmul, sse4.1
extern const Crc32Kernel kCrc32Avx2;    // needs avx2, vpclmulqdq
extern const Crc32Kernel kCrc32Avx512;  // needs avx512f, bw, dq, vl, bmi2, vpclmulqdq
#endif

}  // namespace farverbs::wire
