// An agent that goes wrong, for remote_start_test and remote_failure_test: says hello and whatever its first argument
// tells, in frames that are well-formed or not.
//   version       another version's hello
//   lines         a hello with a version of several lines, and longer than any
//   silent        hello, then nothing for ever
//   early         the end of a rank before any start
//   leaves FILE   writes its process's number into the file, says that it reaches the store, and is gone
//   outlives FILE says that it reaches the store once the launcher has seen that the process of that file is gone
//   foreign       once started, output of a rank of another host
//   flood         once started, more output than it may send
//   random SEED   once started, random messages of all types
//   bytes SEED    once started, random bytes
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "gyre/version.h"
#include "launch/agent_protocol.h"
#include "net/framing.h"

namespace {

using namespace gyre::launch;  // NOLINT(google-build-using-namespace): a program of one file

void Put(const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = write(1, bytes.data() + at, bytes.size() - at);
    if (count <= 0) _exit(1);
    at += static_cast<size_t>(count);
  }
}

void Send(AgentMessage type, const std::string& payload) {
  Put(gyre::EncodeFrame({.type = static_cast<uint16_t>(type)}, payload));
}

// A process that has ended is there until its parent, here the launcher, takes note of it.
void AwaitEnd(const std::string& file) {
  pid_t pid = 0;
  std::ifstream(file) >> pid;
  while (pid > 0 && kill(pid, 0) == 0) usleep(1'000);
}

// Until the launcher lets it start.
void AwaitStart(const std::string& how, const std::string& file) {
  gyre::FrameDecoder decoder(kMaxToAgent);
  char buffer[4096];
  for (ssize_t count; (count = read(0, buffer, sizeof buffer)) > 0;) {
    for (gyre::Bytes left = std::as_bytes(std::span(buffer, static_cast<size_t>(count))); !left.empty();) {
      const auto frame = decoder.Next(left);
      if (!frame.ok()) _exit(1);
      if (!frame->has_value()) continue;
      const auto type = static_cast<AgentMessage>((*frame)->header.type);
      if (type == AgentMessage::kJob) Send(AgentMessage::kReady, EncodeReady({{}, "127.0.0.1:1"}));
      if (type == AgentMessage::kReach && how == "outlives") AwaitEnd(file);
      if (type == AgentMessage::kReach) Send(AgentMessage::kReached, EncodeWay({}));
      if (type == AgentMessage::kReach && how == "leaves") _exit(0);
      if (type == AgentMessage::kStart) return;
    }
  }
  _exit(1);
}

std::string RandomBytes(std::mt19937& random) {
  std::string bytes(random() % 40, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 3);
  return bytes;
}

std::string VersionOf(const std::string& how) {
  if (how == "version") return "0.0.0-other";
  if (how == "lines") return "1\ngyrerun: all is well\n" + std::string(10'000, 'x');
  return GYRE_VERSION_STRING;
}

void Misbehave(const std::string& how, const std::string& what) {
  std::mt19937 random(static_cast<unsigned>(std::atoi(what.c_str())));
  if (how == "leaves") std::ofstream(what) << getpid() << std::flush;
  Send(AgentMessage::kHello, EncodeHello({VersionOf(how), "bad"}));
  if (how == "early") Send(AgentMessage::kRankEnded, EncodeRankEnd({}));
  if (how == "version" || how == "lines" || how == "silent" || how == "early") return;
  AwaitStart(how, what);
  if (how == "foreign") Send(AgentMessage::kOutput, EncodeOutput({99, 1, "not mine\n"}));
  for (int i = 0; how == "flood" && i < 200; ++i) {
    Send(AgentMessage::kOutput, EncodeOutput({0, 1, std::string(30'000, 'x') + "\n"}));
  }
  for (int i = 0; how == "random" && i < 200; ++i) {
    Send(static_cast<AgentMessage>(random() % 14), RandomBytes(random));
  }
  for (int i = 0; how == "bytes" && i < 100; ++i) Put(RandomBytes(random));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  Put(std::string(kAgentMagic));
  Misbehave(argv[1], argc > 2 ? argv[2] : "");
  while (true) pause();
}
