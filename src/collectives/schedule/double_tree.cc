#include "collectives/schedule/double_tree.h"

#include <bit>
#include <vector>

#include "collectives/schedule/steps.h"

namespace gyre::internal {

namespace {

constexpr int kTrees = 2;

// A rank's neighbours in one tree.
struct TreeLinks {
  std::vector<int> up;    // one, or none at the top
  std::vector<int> down;  // the larger subtree first
};

// A binary tree over the nodes 1 to `count` in order: a node is as high as its lowest set bit is, its children are half
// that bit to its left and right, or nearer where the right one would lie beyond `count`. So the odd nodes are leaves
// and the even ones are not.
TreeLinks InOrder(int node, int count) {
  const int bit = node & -node;
  TreeLinks links;
  if (node + bit <= count && (node & (2 * bit)) == 0) {
    links.up.push_back(node + bit);
  } else if (node != bit) {
    links.up.push_back(node - bit);
  }
  int away = bit / 2;
  if (away > 0) links.down.push_back(node - away);
  while (node + away > count) away /= 2;
  if (away > 0) links.down.push_back(node + away);
  return links;
}

int Top(int count) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(count)));
}

// Where the nodes of two trees over `count` places lie. The second tree has its even nodes where the first has odd
// ones: it is the first one's mirror image, or, where that would put even onto even, the first one shifted by a place.
int NodeAt(int tree, int place, int count) {
  if (tree == 0) return place + 1;
  if (count % 2 == 0) return count - place;
  return place == 0 ? count : place;
}
int PlaceOf(int tree, int node, int count) {
  if (tree == 0) return node - 1;
  return count % 2 == 0 ? count - node : node % count;
}

// Trees over `size` places, counted from rank `first` on.
TreeLinks LinksOf(int tree, int place, int places, int first, int size) {
  TreeLinks links = InOrder(NodeAt(tree, place, places), places);
  for (std::vector<int>* const nodes : {&links.up, &links.down}) {
    for (int& node : *nodes) node = Wrapped(first + PlaceOf(tree, node, places), size);
  }
  return links;
}

// Trees over all ranks but the root, and the root above them.
TreeLinks RootedLinks(int tree, int rank, int size, int root) {
  if (size == 1) return {};
  const int places = size - 1, first = root + 1;
  if (rank == root) return {.up = {}, .down = {Wrapped(first + PlaceOf(tree, Top(places), places), size)}};
  TreeLinks links = LinksOf(tree, Wrapped(rank - first, size), places, first, size);
  if (links.up.empty()) links.up.push_back(root);
  return links;
}

void AppendDown(const TreeLinks& links, int block, Schedule& schedule) {
  for (const int parent : links.up) schedule.steps.push_back(ReceiveFrom(parent, block));
  for (const int child : links.down) schedule.steps.push_back(SendTo(child, block));
}

// The smaller subtree first: it is through sooner.
void AppendUp(const TreeLinks& links, int block, Schedule& schedule) {
  for (auto child = links.down.rbegin(); child != links.down.rend(); ++child) {
    schedule.steps.push_back(ReduceFrom(*child, block));
  }
  for (const int parent : links.up) schedule.steps.push_back(SendTo(parent, block));
}

}  // namespace

Schedule DoubleTreeBroadcast(int rank, int size, int root) {
  Schedule schedule{.blocks = kTrees, .steps = {}};
  for (int tree = 0; tree < kTrees; ++tree) AppendDown(RootedLinks(tree, rank, size, root), tree, schedule);
  return schedule;
}

Schedule DoubleTreeReduce(int rank, int size, int root) {
  Schedule schedule{.blocks = kTrees, .steps = {}};
  for (int tree = 0; tree < kTrees; ++tree) AppendUp(RootedLinks(tree, rank, size, root), tree, schedule);
  return schedule;
}

Schedule DoubleTreeAllReduce(int rank, int size) {
  Schedule schedule{.blocks = kTrees, .steps = {}};
  for (int tree = 0; tree < kTrees; ++tree) AppendUp(LinksOf(tree, rank, size, 0, size), tree, schedule);
  for (int tree = 0; tree < kTrees; ++tree) AppendDown(LinksOf(tree, rank, size, 0, size), tree, schedule);
  return schedule;
}

}  // namespace gyre::internal
