package cmd

import (
	"context"
	"fmt"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/simba-lock/simba/backend"
)

type doctorOptions struct {
	backendFlags
	asJSON bool
	schema bool
}

// exitDoubtful is the exit status of doctor if a backend works, but not as well as
// it could.
const exitDoubtful exitCode = 1

func (a *app) newDoctor() *cobra.Command {
	o := &doctorOptions{}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Try whether a backend can be relied on",
		Long: `doctor tries on a mutex of its own all that a run asks of the backend, cleans up
after itself and says what is wrong and what to do about it. It also asks a server
about what would weaken the promise: what it forgets, evicts or copies too late.

Exit status: 0 if all is well, 1 if it works but something is doubtful, 69 if it
does not work, 64 for a usage error.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.settle(c.Flags(), &o.backendFlags, "", backendFlagNames...); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			if o.schema {
				return a.printSchema(o.url)
			}
			return a.doctor(c.Context(), o)
		},
	}
	o.add(c.Flags())
	c.Flags().VarP(&choiceValue[bool]{v: &o.asJSON, words: []string{"table", "json"}, are: []bool{false, true}},
		"output", "o", "form of what is printed")
	c.Flags().BoolVar(&o.schema, "print-schema", false, "only print the statements that make the tables of a database")
	return c
}

func (a *app) printSchema(url string) error {
	text := backend.Schema(url)
	if text == "" {
		return usagef("--print-schema: only a mysql: backend has tables")
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}

// finding is what one check came to.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, doubtful or bad
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"`
}

const (
	fine  = "ok"
	shaky = "doubtful"
	bad   = "bad"
)

func (a *app) doctor(ctx context.Context, o *doctorOptions) error {
	b, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer onSignals(func(sig syscall.Signal) { giveUp(&ended{sig: sig}) })()
	e := &examination{backend: b, limit: o.connectTimeout}
	e.all(ctx) // and it cleans up
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := a.writeFindings(o, e.findings); err != nil {
		return err
	}
	switch e.worst() {
	case bad:
		return &ended{code: exitUnavailable}
	case shaky:
		return &ended{code: exitDoubtful}
	}
	return nil
}

func (a *app) writeFindings(o *doctorOptions, findings []finding) error {
	if o.asJSON {
		for _, f := range findings {
			if err := writeJSONLine(a.stdout, f); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	paint := func(status string) string { return status }
	if colours(a.stdout) {
		paint = func(status string) string { return colourOf(status).paint(status) }
	}
	for _, f := range findings {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", paint(f.Status), f.Check, escapeLines(f.Detail))
		if f.Advice != "" {
			_, _ = fmt.Fprintf(w, "%s\t\t→ %s\n", paint(""), escape(f.Advice))
		}
	}
	return w.Flush()
}
