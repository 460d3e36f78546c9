// Lets a host program stop a long computation: Python's Ctrl-C becomes an exception inside the engine.
// Main entry: set_interrupt_check(), check_interrupt().
#pragma once

namespace anello {

/// A function that raises when the user wants to stop, else returns; called from the thread that computes. Null: none.
void set_interrupt_check(void (*check)());
/// Called between kernels by whatever runs long (backward, loaders, training loops); asks at most every 50 ms.
void check_interrupt();

}  // namespace anello
