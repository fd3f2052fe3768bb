// All kernels, for the instruction set whose vec_*.h was included before.
#pragma once
#include <atomic>
#include <new>

#include "isa.h"
#include "memory.h"
#include "threads.h"
// in the order of their use of each other
#include "exp.h"
#include "gemm.h"
#include "pack.h"
#include "mask.h"
#include "logits.h"
#include "softmax.h"
#include "dropout.h"
#include "block.h"
#include "plan.h"
#include "decode.h"
#include "forward.h"
#include "slope.h"
#include "bias_grad.h"
#include "backward.h"
#include "pool.h"
