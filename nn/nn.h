// SPDX-License-Identifier: Apache-2.0
// Includes what most programs need of nn: layers, models and optimizers.
#pragma once
#include "dtensor/nn/checkpoint.h"
#include "dtensor/nn/config.h"
#include "dtensor/nn/engine.h"
#include "dtensor/nn/grad_scaler.h"
#include "dtensor/nn/language_model.h"
#include "dtensor/nn/layers.h"
#include "dtensor/nn/models.h"
#include "dtensor/nn/module.h"
#include "dtensor/nn/optimizer.h"
#include "dtensor/nn/optimizers.h"
#include "dtensor/nn/parallel.h"
#include "dtensor/nn/parameter.h"
#include "dtensor/nn/pipeline.h"
#include "dtensor/nn/pipeline_model.h"
#include "dtensor/nn/sequential.h"
#include "dtensor/nn/trainer.h"
