// What the core knows about itself, for hpcomm/cli/info.py and for hpcomm/checks.py's tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <vector>

#include "bindings.hpp"
#include "collectives/algorithm.hpp"
#include "collectives/selection.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

constexpr Collective kAll[] = {Collective::barrier, Collective::broadcast, Collective::allreduce,
                               Collective::allgather, Collective::reduce_scatter};

py::list algorithms() {
  py::list result;
  for (const Collective kind : kAll) {
    for (const Algorithm& algorithm : algorithms_of(kind)) {
      py::dict row;
      row["collective"] = name_of(kind);
      row["name"] = algorithm.name;
      row["summary"] = algorithm.summary;
      row["source"] = algorithm.source;
      row["order"] = name_of(algorithm.order);
      row["accumulates_wide"] = algorithm.accumulates_wide;
      result.append(std::move(row));
    }
  }
  return result;
}

template <class Code>
std::vector<std::string> names(int count) {
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(count));
  for (int code = 0; code < count; ++code) result.emplace_back(name_of(static_cast<Code>(code)));
  return result;
}

}  // namespace

void bind_info(py::module_& module) {
  module.attr("DTYPES") = py::tuple(py::cast(names<DType>(kNumDTypes)));
  module.attr("OPS") = py::tuple(py::cast(names<ReduceOp>(kNumReduceOps)));
  module.attr("COMPILER") = __VERSION__;
  module.def("algorithms", &algorithms, "The rows of all algorithm tables.");
  module.def(
      "selection_map",
      [](const std::string& override_text) { return Selection(override_text).map(); },
      py::arg("override_text") = "",
      "The selection table that an override text makes, for people.");
}

}  // namespace hpcomm::python
