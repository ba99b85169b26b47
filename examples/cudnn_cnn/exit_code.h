// How cudnn_cnn ends.
#pragma once

namespace cudnn_cnn {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 64;
inline constexpr int kExitNoGpu = 77;

}  // namespace cudnn_cnn
