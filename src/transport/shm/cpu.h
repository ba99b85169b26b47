// A hint to the processor. It changes nothing but speed.
#pragma once

namespace gyre::shm {

// In a loop that looks at memory until another processor changes it.
inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace gyre::shm
