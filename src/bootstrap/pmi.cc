#include "bootstrap/pmi.h"

#include <map>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "net/socket.h"

namespace gyre {

namespace {

constexpr size_t kMaxLineBytes = 4096;

using Fields = std::map<std::string, std::string, std::less<>>;

// A line is "cmd=name key=value ...\n"; a command is answered by one line.
class PmiConnection {
 public:
  PmiConnection(int fd, TimePoint deadline) : fd_(fd), deadline_(deadline) {}

  // Sends a command and returns the answer's fields, which must be of the kind `expected`.
  absl::StatusOr<Fields> Call(std::string_view command, std::string_view expected) {
    RETURN_IF_ERROR(SendAll(fd_, AsBytes(absl::StrCat(ToAbsl(command), "\n")), deadline_));
    ASSIGN_OR_RETURN(const std::string line, ReadLine());
    Fields fields;
    for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
      fields.insert(field);
    }
    if (fields["cmd"] != expected) {
      return absl::UnavailableError(absl::StrCat("answered ", line, " where ", ToAbsl(expected), " was due"));
    }
    return fields;
  }

 private:
  // Byte by byte: what follows the line on this descriptor may be MPI's to read.
  absl::StatusOr<std::string> ReadLine() {
    std::string line;
    std::byte next{};
    for (;;) {
      RETURN_IF_ERROR(ReceiveExactly(fd_, MutableBytes(&next, 1), deadline_));
      if (next == std::byte{'\n'}) return line;
      if (line.size() == kMaxLineBytes) return absl::UnavailableError("answered a line without end");
      line.push_back(static_cast<char>(next));
    }
  }

  const int fd_;
  const TimePoint deadline_;
};

std::string Key(int rank, int round) { return absl::StrCat("gyre-", rank, "-", round); }

absl::StatusOr<std::string> Broadcast(PmiConnection& pmi, int rank, const std::string& value) {
  // No "init": it is MPI's to send, once, and Hydra serves these commands without.
  ASSIGN_OR_RETURN(Fields space, pmi.Call("cmd=get_my_kvsname", "my_kvsname"));
  const std::string kvs = absl::StrCat(" kvsname=", space["kvsname"], " key=");
  // A key is written once. Each rank writes one of its own every round, by which it knows, without any memory in this
  // process, which round this is.
  int round = 0;
  for (;; ++round) {
    ASSIGN_OR_RETURN(Fields own, pmi.Call(absl::StrCat("cmd=get", kvs, Key(rank, round)), "get_result"));
    if (own["rc"] != "0") break;
  }
  ASSIGN_OR_RETURN(Fields put, pmi.Call(absl::StrCat("cmd=put", kvs, Key(rank, round), " value=",
                                                     rank == 0 ? value : "here"), "put_result"));
  if (put["rc"] != "0") return absl::UnavailableError(absl::StrCat("refused a value: ", put["msg"]));
  RETURN_IF_ERROR(pmi.Call("cmd=barrier_in", "barrier_out").status());
  ASSIGN_OR_RETURN(Fields got, pmi.Call(absl::StrCat("cmd=get", kvs, Key(0, round)), "get_result"));
  if (got["rc"] != "0") return absl::UnavailableError("lost rank 0's value");
  return got["value"];
}

}  // namespace

absl::StatusOr<std::string> PmiBroadcast(int fd, int rank, const std::string& value, TimePoint deadline) {
  PmiConnection pmi(fd, deadline);
  auto result = Broadcast(pmi, rank, value);
  if (!result.ok()) return Annotate(result.status(), absl::StrCat("MPICH's launcher (PMI_FD=", fd, ")"));
  return result;
}

}  // namespace gyre
