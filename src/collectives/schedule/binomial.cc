#include "collectives/schedule/binomial.h"

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

// The tree over places counted from the root: the parent of a place is the place without its lowest bit, its children
// are the place plus each power of two below that bit. Of the root, that bit lies above all places.
struct Tree {
  Tree(int rank, int size, int root) : place(Wrapped(rank - root, size)), size(size), root(root) {
    while (reach < size && (place & reach) == 0) reach *= 2;
  }

  bool is_root() const { return place == 0; }
  int parent() const { return Rank(place - reach); }
  bool HasChild(int distance) const { return place + distance < size; }
  int Child(int distance) const { return Rank(place + distance); }

  int place;
  int size;
  int root;
  int reach = 1;  // the lowest bit of the place

 private:
  int Rank(int at) const { return Wrapped(at + root, size); }
};

}  // namespace

Schedule BinomialBroadcast(int rank, int size, int root) {
  const Tree tree(rank, size, root);
  Schedule schedule{.blocks = 1, .steps = {}};
  if (!tree.is_root()) schedule.steps.push_back(ReceiveFrom(tree.parent(), 0));
  // The largest subtree first: it has the longest way to go.
  for (int distance = tree.reach / 2; distance > 0; distance /= 2) {
    if (tree.HasChild(distance)) schedule.steps.push_back(SendTo(tree.Child(distance), 0));
  }
  return schedule;
}

Schedule BinomialReduce(int rank, int size, int root) {
  const Tree tree(rank, size, root);
  Schedule schedule{.blocks = 1, .steps = {}};
  for (int distance = 1; distance < tree.reach; distance *= 2) {
    if (tree.HasChild(distance)) schedule.steps.push_back(ReduceFrom(tree.Child(distance), 0));
  }
  if (!tree.is_root()) schedule.steps.push_back(SendTo(tree.parent(), 0));
  return schedule;
}

}  // namespace gyre::internal
