#pragma once

#include <nanobind/nanobind.h>

// Adds forward push and what is computed from its rows to the module.
void define_push(nanobind::module_ &m);
