package throttleotel_test

import (
	"context"
	"fmt"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// A point is one series of an instrument, whatever its type. Of a histogram value is the count.
type point struct {
	attrs attribute.Set
	value float64
}

// has reports whether the point has an attribute with that text; "": it does not matter.
func (p point) has(key attribute.Key, text string) bool {
	v, ok := p.attrs.Value(key)
	return text == "" || ok && v.Emit() == text
}

// metrics is what one collection has yielded, by name.
type metrics map[string]metricdata.Metrics

// gather makes a collection.
func gather(t testing.TB, r sdkmetric.Reader) metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	m := metrics{}
	for _, s := range all.ScopeMetrics {
		for _, one := range s.Metrics {
			m[one.Name] = one
		}
	}
	return m
}

// points returns the series of an instrument.
func (m metrics) points(name string) (ps []point) {
	switch d := m[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Value)})
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{p.Attributes, p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			ps = append(ps, point{p.Attributes, float64(p.Count)})
		}
	}
	return ps
}

// sum adds up the series of an instrument that have an attribute with that text.
func (m metrics) sum(name string, key attribute.Key, text string) (sum float64) {
	for _, p := range m.points(name) {
		if p.has(key, text) {
			sum += p.value
		}
	}
	return sum
}

// kind says what an instrument is, in the words of the package's documentation.
func kind(m metricdata.Metrics) string {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		if d.IsMonotonic {
			return "counter"
		}
		return "up-down counter"
	case metricdata.Gauge[float64]:
		return "gauge"
	case metricdata.Histogram[float64]:
		return "histogram"
	}
	return fmt.Sprintf("%T", m.Data)
}

// documented returns the instruments that the comments of a file list, as "name kind unit".
func documented(t *testing.T, file string) (list []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\t(throttle\.[a-z_.]+) +([a-z-]+(?: counter)?), (\S+?)[:,]`)
	for _, c := range f.Comments {
		for _, found := range line.FindAllStringSubmatch(c.Text(), -1) {
			list = append(list, strings.Join(found[1:], " "))
		}
	}
	slices.Sort(list)
	return list
}

// seen returns the instruments of a collection in the same way.
func (m metrics) seen() (list []string) {
	for name, one := range m {
		list = append(list, fmt.Sprintf("%s %s %s", name, kind(one), one.Unit))
		if one.Description == "" {
			list = append(list, name+" has no description")
		}
	}
	slices.Sort(list)
	return list
}

// reader returns a provider and its reader.
func reader() (*sdkmetric.MeterProvider, *sdkmetric.ManualReader) {
	r := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(r)), r
}
