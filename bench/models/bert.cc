#include <string>
#include <utility>

#include "builder.h"
#include "generators.h"

namespace gyre::bench {

namespace {

constexpr int64_t kHidden = 1024, kInner = 4096, kWords = 30522, kPositions = 512, kKinds = 2, kSequence = 128;

void Embeddings(Builder& net) {
  net.Add("bert.embeddings.word_embeddings.weight", {kWords, kHidden});
  net.Add("bert.embeddings.position_embeddings.weight", {kPositions, kHidden});
  net.Add("bert.embeddings.token_type_embeddings.weight", {kKinds, kHidden});
  net.Norm("bert.embeddings.LayerNorm", kHidden);
}

void Layer(Builder& net, const std::string& name) {
  net.Linear(name + ".attention.self.query", kHidden, kHidden, kSequence);
  net.Linear(name + ".attention.self.key", kHidden, kHidden, kSequence);
  net.Linear(name + ".attention.self.value", kHidden, kHidden, kSequence);
  net.AddWork(2 * 2.0 * kSequence * kSequence * kHidden);  // scores, and what they weigh
  net.Linear(name + ".attention.output.dense", kHidden, kHidden, kSequence);
  net.Norm(name + ".attention.output.LayerNorm", kHidden);
  net.Linear(name + ".intermediate.dense", kHidden, kInner, kSequence);
  net.Linear(name + ".output.dense", kInner, kHidden, kSequence);
  net.Norm(name + ".output.LayerNorm", kHidden);
}

// The decoder's matrix is the word embeddings': its gradient is whole only at the very end of a backward pass.
void Heads(Builder& net) {
  net.Linear("bert.pooler.dense", kHidden, kHidden);
  net.Linear("cls.predictions.transform.dense", kHidden, kHidden, kSequence);
  net.Norm("cls.predictions.transform.LayerNorm", kHidden);
  net.Add("cls.predictions.bias", {kWords}, 2.0 * kHidden * kWords * kSequence);
  net.Linear("cls.seq_relationship", kHidden, 2);
}

}  // namespace

Model BertLarge() {
  Builder net("bert-large", "uncased, sequence of 128, masked words and next sentence");
  Embeddings(net);
  for (int layer = 0; layer < 24; ++layer) Layer(net, "bert.encoder.layer." + std::to_string(layer));
  Heads(net);
  return std::move(net).Build();
}

}  // namespace gyre::bench
