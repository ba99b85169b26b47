// cudnn_cnn's convolutions on host_cudnn.cc in place of cuDNN: what is chosen, shared and refused. What they compute
// is cudnn_cnn_network_test.cc's.
#include "convolutions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support/status_matchers.h"

namespace cudnn_cnn {
namespace {

using gyre::support::IsOk;
using ::testing::HasSubstr;

ConvShape Shape(const char* name, int channels, int kernel) {
  return {.name = name,
          .in = {.height = 6, .width = 6, .channels = 8},
          .out = {.height = 6, .width = 6, .channels = channels},
          .kernel = kernel,
          .stride = 1};
}

class ConvolutionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto gpu = OpenGpu(0);
    ASSERT_THAT(gpu, IsOk());
    gpu_ = *std::move(gpu);
  }
  Gpu gpu_;
};

TEST_F(ConvolutionTest, PassesOverWhatCannotBeBuiltOrNeedsTooMuchMemory) {
  const auto made = Convolution::Make(gpu_.dnn.get(), Shape("first", 16, 3), 2, Precision::kBf16);
  ASSERT_THAT(made, IsOk());
  EXPECT_EQ(made->workspace(), 16);
}

// The stand-in's engine 3, which its heuristics name first for gradients, needs 32 bytes.
TEST_F(ConvolutionTest, TakesWhatGivesTheSameBitsEveryTimeWhereThereIsAny) {
  auto same = Convolution::Make(gpu_.dnn.get(), Shape("first", 16, 3), 2, Precision::kF32);
  ASSERT_THAT(same, IsOk());
  ASSERT_THAT(same->AddBackwardData(), IsOk());
  EXPECT_EQ(same->workspace(), 16);
  const auto other = Convolution::Make(gpu_.dnn.get(), Shape("first", 16, 7), 2, Precision::kF32);
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(other->workspace(), 32);
}

// Of 9 x 9 the stand-in supports all but the gradient of the input.
TEST_F(ConvolutionTest, AGradientOfTheInputThatNobodyAsksForIsNotPlanned) {
  const ConvShape shape = Shape("first", 16, 9);
  Convolutions convolutions(gpu_.dnn.get(), 2, Precision::kF32);
  EXPECT_THAT(convolutions.Of(shape, false), IsOk());
  const auto asked = convolutions.Of(shape, true);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(asked.status().message(), HasSubstr("the gradient of the input of first"));
}

TEST_F(ConvolutionTest, SaysWhatIsNotSupported) {
  const auto made = Convolution::Make(gpu_.dnn.get(), Shape("first", 16, 5), 2, Precision::kF32);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(made.status().message(),
              HasSubstr("the forward pass of first (2 images of 6 x 6 x 8 to 6 x 6 x 16, 5 x 5, stride 1, f32)"));
  // Two of mode A, one that is always there; and why the last was none.
  EXPECT_THAT(made.status().message(), HasSubstr("3 tried"));
  EXPECT_THAT(made.status().message(), HasSubstr("engine 0"));
}

TEST_F(ConvolutionTest, SaysWhatIsWrongWithAShape) {
  ConvShape shape = Shape("first", 16, 3);
  shape.out.height = 7;
  const auto made = Convolution::Make(gpu_.dnn.get(), shape, 2, Precision::kF32);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), HasSubstr("6 x 6 x 8 to 7 x 6 x 16"));
  EXPECT_THAT(made.status().message(), HasSubstr("finalising descriptor 10"));
}

TEST_F(ConvolutionTest, LayersOfOneShapeShareOne) {
  Convolutions convolutions(gpu_.dnn.get(), 2, Precision::kF32);
  EXPECT_EQ(convolutions.workspace(), 0);
  const auto first = convolutions.Of(Shape("first", 16, 3), false),
             second = convolutions.Of(Shape("second", 16, 3), true),
             other = convolutions.Of(Shape("first", 16, 1), true);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  ASSERT_THAT(other, IsOk());
  EXPECT_EQ(*first, *second);
  EXPECT_NE(*first, *other);
  EXPECT_EQ(convolutions.workspace(), 16);
}

}  // namespace
}  // namespace cudnn_cnn
