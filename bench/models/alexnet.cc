#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

Model AlexNet() {
  Builder net("alexnet", "224 x 224 image, 1000 classes");
  Extent at = net.Conv("features.0", {3, 224, 224}, 64, Square(11, 4, 2), Bias::kYes);
  at = net.Conv("features.3", Pool(at, Square(3, 2)), 192, Same(5, 5), Bias::kYes);
  at = net.Conv("features.6", Pool(at, Square(3, 2)), 384, Same(3, 3), Bias::kYes);
  at = net.Conv("features.8", at, 256, Same(3, 3), Bias::kYes);
  at = net.Conv("features.10", at, 256, Same(3, 3), Bias::kYes);
  at = Pool(at, Square(3, 2));
  net.Linear("classifier.1", at.channels * at.height * at.width, 4096);
  net.Linear("classifier.4", 4096, 4096);
  net.Linear("classifier.6", 4096, 1000);
  return std::move(net).Build();
}

}  // namespace gyre::bench
