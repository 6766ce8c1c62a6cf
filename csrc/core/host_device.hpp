// Marks per-element functions that the CPU path and device kernels share.
#pragma once

#if defined(__CUDACC__)
#define HPCOMM_HOST_DEVICE __host__ __device__
#else
#define HPCOMM_HOST_DEVICE
#endif
