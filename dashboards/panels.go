package main

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// Units of Grafana.
const (
	perSecond = "cps"
	seconds   = "s"
	count     = "short"
	bytesIEC  = "bytes"
	byteRate  = "binBps"
	cores     = "suffix: cores"
	percent   = "percent"
	none      = "none"
)

// Colours that are distinguishable with colour blindness (Okabe and Ito).
const (
	blue, orange, green, red = "#0072B2", "#E69F00", "#009E73", "#D55E00"
	sky, pink, grey          = "#56B4E9", "#CC79A7", "#999999"
)

// look contains the settings of a panel except its queries.
type look struct {
	title, doc    string
	unit          string
	width, height uint32
	queries       []flux
	legend        string            // name of a series, in Grafana's syntax; "": its field
	colours       map[string]string // by the series' name
	names         [][2]string       // names shown for columns or series, in order
	units         [][2]string       // of columns that differ
	decimals      *float64
	empty         string // text shown without data
}

func (l look) targets() []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for _, q := range l.queries {
		all = append(all, q)
	}
	return all
}

// whenEmpty is the text of a panel without data.
func (l look) whenEmpty() string {
	if l.empty == "" {
		return "nothing in this time range"
	}
	return l.empty
}

func property(id string, value any) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{{Id: id, Value: value}}
}

// dress applies the settings of single columns and series.
func (l look) dress(by func(name string, p []dashboard.DynamicConfigValue)) {
	for _, c := range sortedKeys(l.colours) {
		by(c, property("color", map[string]any{"mode": "fixed", "fixedColor": l.colours[c]}))
	}
	for _, u := range l.units {
		by(u[0], property("unit", u[1]))
	}
	for _, n := range l.names {
		by(n[0], property("displayName", n[1]))
	}
}

// lines draws series over time, on an axis from zero. A gap in the data is a gap in the line.
func lines(l look) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().Title(l.title).Description(l.doc).Datasource(source()).Targets(l.targets()).
		Unit(l.unit).Min(0).Span(l.width).Height(l.height).Interval("1s").NoValue(l.whenEmpty()).
		LineInterpolation(common.LineInterpolationLinear).LineWidth(1.5).FillOpacity(0).ShowPoints(common.VisibilityModeAuto).PointSize(4).
		SpanNulls(common.BoolOrFloat64{Float64: ptr(float64(3000))}).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).
			ShowLegend(true).Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending))
	if l.legend != "" {
		p.DisplayName(l.legend)
	}
	l.dress(func(name string, v []dashboard.DynamicConfigValue) { p.OverrideByName(name, v) })
	return p
}

// bars draws counts per interval.
func bars(l look) *timeseries.PanelBuilder {
	return lines(l).DrawStyle(common.GraphDrawStyleBars).FillOpacity(60).LineWidth(0).BarAlignment(common.BarAlignmentAfter).
		ShowPoints(common.VisibilityModeNever).Decimals(0).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A"))
}

// columns draws one bar per row and numeric column of a table. The first column contains the names.
func columns(l look, x string) *barchart.PanelBuilder {
	p := barchart.NewPanelBuilder().Title(l.title).Description(l.doc).Datasource(source()).Targets(l.targets()).
		Unit(l.unit).Min(0).Span(l.width).Height(l.height).NoValue(l.whenEmpty()).XField(x).
		Orientation(common.VizOrientationAuto).ShowValue(common.VisibilityModeAuto).GroupWidth(0.75).BarWidth(0.9).
		XTickLabelRotation(-30).XTickLabelMaxLength(60).FillOpacity(80).
		Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom).ShowLegend(true).Calcs([]string{})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderNone))
	l.dress(func(name string, v []dashboard.DynamicConfigValue) { p.OverrideByName(name, v) })
	return p
}

// grid is a table.
func grid(l look) *table.PanelBuilder {
	p := table.NewPanelBuilder().Title(l.title).Description(l.doc).Datasource(source()).Targets(l.targets()).
		Unit(l.unit).Span(l.width).Height(l.height).NoValue(l.whenEmpty()).Filterable(true).CellHeight(common.TableCellHeightSm).
		// which the published schema requires
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	if l.decimals != nil {
		p.Decimals(*l.decimals)
	}
	l.dress(func(name string, v []dashboard.DynamicConfigValue) { p.OverrideByName(name, v) })
	return p
}

// number shows the last value of each series in large type.
func number(l look) *stat.PanelBuilder {
	p := stat.NewPanelBuilder().Title(l.title).Description(l.doc).Datasource(source()).Targets(l.targets()).
		Unit(l.unit).Span(l.width).Height(l.height).Interval("1s").NoValue(l.whenEmpty()).
		GraphMode(common.BigValueGraphModeNone).ColorMode(common.BigValueColorModeNone).TextMode(common.BigValueTextModeAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}).Fields("/.*/").Values(false))
	if l.decimals != nil {
		p.Decimals(*l.decimals)
	}
	if l.legend != "" {
		p.DisplayName(l.legend)
	}
	l.dress(func(name string, v []dashboard.DynamicConfigValue) { p.OverrideByName(name, v) })
	return p
}

// base contains the common settings of dashboards. name is the name of the file.
func base(title, name, doc string) *dashboard.DashboardBuilder {
	d := dashboard.NewDashboardBuilder(title).Uid("lockstep-" +
		name).Description(doc).Tags([]string{"lockstep"}).Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).Editable()
	links := []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("Lockstep").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"lockstep"}).
			AsDropdown(true).IncludeVars(true).KeepTime(true),
	}
	return d.Links(links)
}

// event is a query whose rows are annotations in all panels.
func event(name, colour, query string) *dashboard.AnnotationQueryBuilder {
	return dashboard.NewAnnotationQueryBuilder().Name(name).Datasource(source()).Enable(true).Hide(false).IconColor(colour).Target(ask("Anno", query))
}

func withAll(d *dashboard.DashboardBuilder, panels ...builder) *dashboard.DashboardBuilder {
	for _, p := range panels {
		d.WithPanel(p)
	}
	return d
}

func row(title string) *dashboard.RowBuilder { return dashboard.NewRowBuilder(title) }

func orList(column string, values ...string) string {
	text := ""
	for i, v := range values {
		if i > 0 {
			text += " or "
		}
		text += fmt.Sprintf("r.%s == %q", column, v)
	}
	return "(" + text + ")"
}

type builder = cog.Builder[dashboard.Panel]
