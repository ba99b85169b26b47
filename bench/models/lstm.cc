#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

Model LstmPtb() {
  constexpr int64_t kHidden = 1500, kGates = 4 * kHidden, kWords = 10'000, kSteps = 35;
  constexpr double kProducts = 2.0 * kGates * kHidden * kSteps;
  Builder net("lstm-ptb", "2 layers of 1500, 10,000 words, 35 steps, two biases a layer");
  net.Add("encoder.weight", {kWords, kHidden});
  for (const char* layer : {"0", "1"}) {
    const std::string suffix = std::string("_l") + layer;
    net.Add("rnn.weight_ih" + suffix, {kGates, kHidden}, kProducts);
    net.Add("rnn.weight_hh" + suffix, {kGates, kHidden}, kProducts);
    net.Add("rnn.bias_ih" + suffix, {kGates});
    net.Add("rnn.bias_hh" + suffix, {kGates});
  }
  net.Linear("decoder", kHidden, kWords, kSteps);
  return std::move(net).Build();
}

}  // namespace gyre::bench
