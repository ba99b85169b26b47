// NeedPlanner: plans for a program whose next forward pass begins before all gradients are there, layer by layer, as
// soon as each layer's are (GradientReducer::WaitFor). What is needed first should not wait for what is needed last.
// Pure and deterministic, as planner.h is.
//
// The model: buckets take turns on one link, each when all its tensors are ready. A gradient is late by as much as it
// comes after the moment at which the forward pass would need it if it never had to wait; what a step loses is the
// largest lateness of all. To keep that smallest, jobs with release and due dates on one machine that may be
// interrupted are carried out by their due dates, earliest first, at every moment among those that are released (Horn,
// "Some simple scheduling algorithms", Naval Research Logistics Quarterly 21, 1974). Calls cannot be interrupted; so
// large gradients travel in slices, between which what is more urgent goes first (Jayarajan et al., "Priority-based
// parameter propagation for distributed DNN training", MLSys 2019).
#pragma once

#include <span>

#include "fusion/plan.h"
#include "fusion/planner.h"

namespace gyre::fusion {

// `ready`: by tensor, seconds since the step began, 0 or more; `need`: likewise, when the forward pass would wait for
// it if it had never waited before. PlanCautiously's plan and plans that go by need, with buckets and slices of several
// sizes, are compared by what they lose, if costs are as given and if they are twice that, taken together: beginning
// with the former, then from the coarse to the fine, another takes the place of the best so far where it loses less by
// 1 % of `need`'s largest, for either. So no other would save more than that. `grain`: as PlanCautiously. A plan has at
// most twice as many turns as buckets.
// REQUIRES: as PlanByCost; need.size() == tensors.size(), and all are finite.
Plan PlanByNeed(std::span<const TensorInfo> tensors, std::span<const double> ready, std::span<const double> need,
                const CostModel& model, double grain = 1);

// How much longer a step takes than if no gradient were late, by that model, for any plan: 0 or more.
double LostSeconds(const Plan& plan, std::span<const double> ready, std::span<const double> need,
                   const CostModel& model);

}  // namespace gyre::fusion
