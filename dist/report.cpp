// What ranks tell one another outside of operations: aborts, and what they wait for when nothing moves.
// Main entry: Group::handle_control(), Group::check_stall().
#include <anello/dist/group.h>

namespace anello::dist {

void Group::handle_control(const Transport::Control& control, const std::vector<StatePtr>&, bool) {
  if (control.message.starts_with("abort ")) break_up(control.message.substr(6), false);
}

void Group::check_stall(Work::State& state, const std::vector<StatePtr>&, bool) {
  const double seconds = seconds_since(state.moved), allowed = stall_timeout_;
  if (allowed <= 0 || seconds < allowed || !state.channel) return;
  std::string ranks;
  for (int r : state.channel->waits_for()) ranks += concat(ranks.empty() ? "" : ", ", r);
  break_up(
      concat('[', name(state.mine.kind), ']', label(state.mine), " waits for rank ", ranks, " since ", seconds, " s."),
      true);
}

}  // namespace anello::dist
