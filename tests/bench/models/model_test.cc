// The tables against what is published of each network.
#include "models/model.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace gyre::bench {

namespace {

struct Published {
  const char* name;
  size_t tensors;
  int64_t parameters;
  double giga_products;  // multiply-adds of a forward pass of one sample, with the classifiers that only training has
};

// Parameters: torchvision's tables of models (with auxiliary classifiers: GoogLeNet, Inception v3), the checkpoint of
// BERT large with its pre-training heads, and PyTorch's form of the PTB LSTM; of DeepSpeech what comes to the 488 MB of
// Lin et al. 2018. Products: torchvision's tables.
constexpr Published kPublished[] = {
    {"resnet50", 161, 25'557'032, 4.09},   {"resnet101", 314, 44'549'160, 7.80},  {"vgg16", 32, 138'357'544, 15.47},
    {"googlenet", 187, 13'004'888, 1.50},  {"inception3", 292, 27'161'264, 5.71}, {"alexnet", 16, 61'100'840, 0.71},
    {"bert-large", 398, 336'226'108, 0.0}, {"deepspeech", 59, 127'933'268, 0.0},  {"lstm-ptb", 11, 66'034'000, 0.0},
};

TEST(ModelTest, Totals) {
  ASSERT_EQ(std::size(kPublished), ModelNames().size());
  for (const Published& published : kPublished) {
    const auto model = MakeModel(published.name);
    ASSERT_THAT(model, support::IsOk());
    EXPECT_EQ(model->name, published.name);
    EXPECT_EQ(model->parameters.size(), published.tensors) << published.name;
    EXPECT_EQ(model->count(), published.parameters) << published.name;
  }
}

// Auxiliary classifiers, which the published figures leave out, are the rest of the tolerance.
TEST(ModelTest, Work) {
  for (const Published& published : kPublished) {
    if (published.giga_products == 0) continue;
    EXPECT_NEAR(MakeModel(published.name)->forward_flops() / 2e9, published.giga_products,
                0.02 * published.giga_products)
        << published.name;
  }
  // Of a transformer about 2 a parameter of its layers and token; of an LSTM 2 a weight and step.
  EXPECT_NEAR(MakeModel("bert-large")->forward_flops(), 2.0 * 128 * (302.3e6 + 31.3e6 + 1e6 + 24 * 2 * 128 * 1024),
              0.01 * 2 * 128 * 336e6);
  EXPECT_EQ(MakeModel("lstm-ptb")->forward_flops(), 2.0 * 35 * (4 * 9'000'000 + 15'000'000));
}

TEST(ModelTest, Shapes) {
  const auto shape_of = [](const char* model, const std::string& name) {
    const Model made = *MakeModel(model);
    for (const Parameter& each : made.parameters) {
      if (each.name == name) return each.shape;
    }
    return std::vector<int64_t>{};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape_of("resnet50", "layer4.2.conv2.weight"), (Shape{512, 512, 3, 3}));
  EXPECT_EQ(shape_of("resnet50", "layer2.0.downsample.0.weight"), (Shape{512, 256, 1, 1}));
  EXPECT_EQ(shape_of("vgg16", "classifier.0.weight"), (Shape{4096, 25088}));
  EXPECT_EQ(shape_of("vgg16", "features.28.bias"), (Shape{512}));
  EXPECT_EQ(shape_of("alexnet", "classifier.1.weight"), (Shape{4096, 9216}));
  EXPECT_EQ(shape_of("inception3", "Mixed_6b.branch7x7dbl_5.conv.weight"), (Shape{192, 128, 1, 7}));
  EXPECT_EQ(shape_of("googlenet", "inception5b.branch3.1.conv.weight"), (Shape{128, 48, 3, 3}));
  EXPECT_EQ(shape_of("bert-large", "bert.encoder.layer.23.intermediate.dense.weight"), (Shape{4096, 1024}));
}

TEST(ModelTest, NamesAreUniqueAndNothingIsEmpty) {
  for (const std::string_view name : ModelNames()) {
    const Model model = *MakeModel(name);
    std::set<std::string> names;
    for (const Parameter& each : model.parameters) {
      EXPECT_TRUE(names.insert(each.name).second) << each.name;
      EXPECT_GT(each.count(), 0) << each.name;
      EXPECT_GE(each.forward_flops, 0) << each.name;
    }
  }
}

TEST(ModelTest, BackwardOrder) {
  const Model model = *MakeModel("resnet50");
  const std::vector<int> order = BackwardOrder(model);
  ASSERT_EQ(order.size(), 161);
  EXPECT_EQ(model.parameters[static_cast<size_t>(order.front())].name, "fc.bias");
  EXPECT_EQ(model.parameters[static_cast<size_t>(order.back())].name, "conv1.weight");
}

TEST(ModelTest, AStrangerIsToldWhatThereIs) {
  const auto model = MakeModel("resnet51");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(model.status().message().find("lstm-ptb"), std::string::npos);
}

}  // namespace

}  // namespace gyre::bench
