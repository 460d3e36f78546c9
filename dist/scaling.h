// Learning rates for the larger batch that several ranks make together.
// Main entry: scale_lr().
#pragma once

#include <anello/optim/schedule.h>

#include <cstdint>

namespace anello::dist {

/// linear: lr times the number of ranks (arXiv 1706.02677), for SGD. sqrt: times its square root, often better for
/// Adam.
enum class LrScaling { linear, sqrt };

/// Multiplies the lr of every group for `ranks` times the batch, and returns the warm-up that begins at the rate of one
/// rank and reaches the new one after `warmup_steps`: hand it to the schedule, which is built after this.
///   optim::CosineAnnealingLR schedule(optimizer, steps, 0, dist::scale_lr(optimizer, comm->size(), 500));
/// Raises ValueError for ranks below 1 and warmup_steps below 0.
optim::Warmup scale_lr(optim::Optimizer& optimizer, int ranks, int64_t warmup_steps = 0,
                       LrScaling scaling = LrScaling::linear);

}  // namespace anello::dist
