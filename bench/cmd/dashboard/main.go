// Dashboard draws docs/grafana.json without Grafana: it runs a Prometheus that scrapes a program for a while, asks it each
// query of each panel, and draws the answers as SVG.
//
// From the root of the repository, with a program prometheus installed:
//
//	go run ./examples/observed -forever &
//	go run ./bench/cmd/dashboard -scrape 127.0.0.1:8089 -for 2m -out docs/grafana.svg
//
// A panel has no right axis here: a series that belongs to one is drawn dashed, in a share of its maximum, which the
// legend names.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"time"
)

func main() {
	scrape := flag.String("scrape", "127.0.0.1:8089", "the program's address; its path is /metrics")
	length := flag.Duration("for", 2*time.Minute, "how long to scrape")
	board := flag.String("dashboard", "docs/grafana.json", "the dashboard")
	out := flag.String("out", "docs/grafana.svg", "where to draw")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *scrape, *board, *out, *length); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// A panel is one of the dashboard.
type panel struct {
	Title, Type string
	Targets     []target
	FieldConfig struct {
		Defaults  struct{ Unit string }
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
}

// A target is one query of a panel.
type target struct{ RefID, Expr, LegendFormat string }

// right reports whether a query's series have an axis of their own.
func (p *panel) right(ref string) bool {
	for _, o := range p.FieldConfig.Overrides {
		for _, prop := range o.Properties {
			if o.Matcher.Options == ref && prop.ID == "custom.axisPlacement" && prop.Value == "right" {
				return true
			}
		}
	}
	return false
}

// variables are what Grafana would put into the queries: a scrape is made each second.
var variables = strings.NewReplacer("$__rate_interval", "4s", "$policy", ".*", "$key", ".*")

// run scrapes, asks and draws.
func run(ctx context.Context, scrape, board, out string, length time.Duration) error {
	text, err := os.ReadFile(board)
	if err != nil {
		return err
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("%s: %w", board, err)
	}
	p, err := start(ctx, scrape)
	if err != nil {
		return err
	}
	defer p.stop()
	began := time.Now()
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return ctx.Err()
	}
	var views []view
	for _, panel := range d.Panels {
		v := view{title: panel.Title, unit: panel.FieldConfig.Defaults.Unit, heat: panel.Type == "heatmap"}
		for _, t := range panel.Targets {
			found, err := p.ask(ctx, variables.Replace(t.Expr), began, began.Add(length))
			if err != nil {
				return fmt.Errorf("%s: %w", panel.Title, err)
			}
			for i := range found {
				found[i].name, found[i].right = legend(t.LegendFormat, found[i].labels), panel.right(t.RefID)
			}
			v.series = append(v.series, found...)
		}
		views = append(views, v)
	}
	return draw(out, views, length)
}

// legend fills in the labels of a series.
func legend(format string, labels map[string]string) string {
	for key, value := range labels {
		format = strings.ReplaceAll(format, "{{"+key+"}}", value)
	}
	return strings.TrimSpace(missing.ReplaceAllString(format, ""))
}

// missing is a label that a series does not have, which Grafana shows as nothing.
var missing = regexp.MustCompile(`{{\w+}}`)
