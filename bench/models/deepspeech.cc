#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

// Lin et al. say 5 recurrent layers and how large the gradients are, not how wide the layers: this width comes to that.
Model DeepSpeech() {
  constexpr int64_t kHidden = 1260, kGates = 4 * kHidden, kLetters = 29, kFrames = 300;
  Builder net("deepspeech", "two convolutions, 5 bidirectional LSTM layers of 1260, 3 s of sound");
  Extent at = net.Conv("conv.0", {1, 161, 2 * kFrames}, 32, {41, 11, 2, 20, 5}, Bias::kYes);
  net.Norm("conv.1", at.channels);
  at = {32, 41, kFrames};  // the second convolution strides over frequencies alone
  net.Add("conv.3.weight", {32, 32, 21, 11}, 2.0 * 32 * 32 * 21 * 11 * static_cast<double>(at.height * at.width));
  net.Add("conv.3.bias", {32});
  net.Norm("conv.4", 32);
  int64_t in = at.channels * at.height;
  for (int layer = 0; layer < 5; ++layer) {
    const std::string name = "rnns." + std::to_string(layer);
    if (layer > 0) net.Norm(name + ".norm", in);
    for (const char* direction : {"", "_reverse"}) {
      const auto work = [](int64_t columns) { return 2.0 * static_cast<double>(kGates * columns * kFrames); };
      net.Add(name + ".weight_ih" + direction, {kGates, in}, work(in));
      net.Add(name + ".weight_hh" + direction, {kGates, kHidden}, work(kHidden));
      net.Add(name + ".bias_ih" + direction, {kGates});
      net.Add(name + ".bias_hh" + direction, {kGates});
    }
    in = kHidden;  // of both directions, added up
  }
  net.Norm("fc.norm", in);
  net.Add("fc.weight", {kLetters, in}, 2.0 * static_cast<double>(kLetters * in * kFrames));
  return std::move(net).Build();
}

}  // namespace gyre::bench
