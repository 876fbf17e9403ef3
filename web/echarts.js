// The parts of Apache ECharts that report.html uses.
export { init, use } from "echarts/core";
import { use } from "echarts/core";
import { CustomChart, ParallelChart, ScatterChart } from "echarts/charts";
import { BrushComponent, GridComponent, ParallelComponent, TooltipComponent } from "echarts/components";
import { SVGRenderer } from "echarts/renderers";

use([CustomChart, ParallelChart, ScatterChart, BrushComponent, GridComponent, ParallelComponent, TooltipComponent, SVGRenderer]);
