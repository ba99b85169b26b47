#include "support/mutator.h"

#include <algorithm>
#include <cstring>

namespace gyre::support {

uint64_t Mutator::operator()() {
  state_ += 0x9e3779b97f4a7c15;
  uint64_t word = state_;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

uint64_t Mutator::Number() {
  switch (Below(4)) {
    case 0: return Below(8);
    case 1: return (*this)() >> Below(64);
    case 2: return (uint64_t{1} << (8 * (1 + Below(7)) - Below(2))) + Below(3) - 1;  // about 2^7, 2^8, 2^15, ...
    default: return uint64_t{0} - Below(3);
  }
}

std::string Mutator::RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t word = (*this)();
    std::memcpy(bytes.data() + i, &word, std::min(sizeof(word), size - i));
  }
  return bytes;
}

std::string Mutator::Mutated(std::string message) {
  for (uint64_t edits = 1 + Below(4); edits > 0; --edits) Edit(message);
  return message;
}

std::string Mutator::MutatedInPlace(std::string message) {
  for (uint64_t edits = 1 + Below(4); edits > 0; --edits) EditInPlace(message);
  return message;
}

void Mutator::Edit(std::string& message) {
  const size_t at = Below(message.size() + 1);
  switch (Below(8)) {
    case 0: message.resize(at); break;
    case 1: message.erase(at, 1 + Below(16)); break;
    case 2: message.insert(at, RandomBytes(1 + Below(16))); break;
    case 3: message.insert(at, message.substr(Below(message.size() + 1), 1 + Below(64))); break;
    default: EditInPlace(message);
  }
}

void Mutator::EditInPlace(std::string& message) {
  if (message.empty()) return;
  const size_t at = Below(message.size());
  switch (Below(4)) {
    case 0: message[at] = static_cast<char>(message[at] ^ (1 << Below(8))); break;
    case 1: message[at] = static_cast<char>((*this)()); break;
    case 2: {
      const uint64_t number = Number();
      const size_t width = std::min<size_t>(size_t{1} << Below(4), message.size() - at);
      std::memcpy(message.data() + at, &number, width);
      break;
    }
    default: std::swap(message[at], message[Below(message.size())]);
  }
}

}  // namespace gyre::support
