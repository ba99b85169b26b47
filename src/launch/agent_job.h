// What an agent does with a job before any rank starts.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launch/agent_protocol.h"
#include "launch/host_facts.h"
#include "launch/job.h"
#include "launch/server_ranks.h"

namespace gyre::launch {

struct AgentDuty {
  Job job;              // with the store, if it is this agent's to serve
  std::string program;  // the file to execute
  HostFacts facts;
  std::unique_ptr<ServerRanks> servers;    // this host's; null: none
  std::vector<std::string> environment{};  // the job's, with what is this host's own
};

// Goes to the job's working directory, finds the program, serves the store and opens servers' sockets if asked to.
// Changes the process's working directory; may block for as long as the system takes to look up the host's name.
std::variant<AgentDuty, Failure> TakeUpJob(const AgentJob& message);

}  // namespace gyre::launch
