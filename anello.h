// Everything a C++ user needs in one line: tensors, autograd, layers, optimizers, datasets, checkpoints.
// Main entry: #include <anello/anello.h>
#pragma once

#include <anello/autograd/engine.h>
#include <anello/autograd/function.h>
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/autograd/gradcheck.h>
#include <anello/autograd/hooks.h>
#include <anello/core/checkpoint.h>
#include <anello/core/parallel.h>
#include <anello/core/random.h>
#include <anello/core/registry.h>
#include <anello/core/state.h>
#include <anello/core/tensor.h>
#include <anello/core/tensor_map.h>
#include <anello/layers/activation.h>
#include <anello/layers/container.h>
#include <anello/layers/conv.h>
#include <anello/layers/dropout.h>
#include <anello/layers/init.h>
#include <anello/layers/linear.h>
#include <anello/layers/loss.h>
#include <anello/layers/module.h>
#include <anello/layers/norm.h>
#include <anello/layers/pool.h>
#include <anello/optim/adam.h>
#include <anello/optim/averaging.h>
#include <anello/optim/clip.h>
#include <anello/optim/muon.h>
#include <anello/optim/optimizer.h>
#include <anello/optim/schedule.h>
#include <anello/optim/sgd.h>
