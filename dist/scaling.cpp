// Learning rates for several ranks.
// Main entry: scale_lr().
#include <anello/dist/scaling.h>

#include <cmath>

namespace anello::dist {

optim::Warmup scale_lr(optim::Optimizer& optimizer, int ranks, int64_t warmup_steps, LrScaling scaling) {
  check<ValueError>(ranks >= 1, "scale_lr", "ranks is ", ranks, ", at least 1 is needed");
  check<ValueError>(warmup_steps >= 0, "scale_lr", "warmup_steps is ", warmup_steps,
                    ", a number of at least 0 is needed");
  const double factor = scaling == LrScaling::linear ? ranks : std::sqrt(ranks);
  for (optim::ParamGroup& group : optimizer.param_groups()) group.options.set("lr", group.options.at("lr") * factor);
  return {warmup_steps, 1 / factor};
}

}  // namespace anello::dist
