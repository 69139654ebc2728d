// Names that stand in two version nodes (1.0 and 1.1) say in their source file which is which:
// linkers differ in what they make of a version script alone. 1.0's are in compat_1_0.cc.
#pragma once

// After the definition, at file scope: what programs that are linked today get.
#define FV_DEFAULT_VERSION(name) __asm__(".symver " #name ", " #name "@@@IBVERBS_1.1")
