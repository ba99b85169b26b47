#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

Model Vgg16() {
  constexpr int kPool = 0;
  constexpr int kLayers[] = {64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                             kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
  Builder net("vgg16", "224 x 224 image, 1000 classes");
  Extent at{3, 224, 224};
  int index = 0;  // of the layer in its sequence, activations included
  for (const int channels : kLayers) {
    if (channels == kPool) {
      at = Pool(at, Square(2, 2));
      index += 1;
    } else {
      at = net.Conv("features." + std::to_string(index), at, channels, Same(3, 3), Bias::kYes);
      index += 2;
    }
  }
  net.Linear("classifier.0", at.channels * at.height * at.width, 4096);
  net.Linear("classifier.3", 4096, 4096);
  net.Linear("classifier.6", 4096, 1000);
  return std::move(net).Build();
}

}  // namespace gyre::bench
