package mysql

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

//go:embed sql/*.sql
var files embed.FS

// statement is the text of a file in sql/ with its named parameters in order. It
// is made when it is first needed: the others are not even read by a run.
type statement func() compiled

type compiled struct {
	text  string
	names []string
}

// args are the values of a statement's parameters by name.
type args map[string]any

var (
	schemaSQL    = sync.OnceValue(func() string { return read("schema") })
	sessionSQL   = sync.OnceValue(func() string { return text("session") })
	lookSQL      = compile("look")
	takeSQL      = compile("take")
	renewSQL     = compile("renew")
	reassertSQL  = compile("reassert")
	releaseSQL   = compile("release")
	leaveSQL     = compile("leave")
	yieldSQL     = compile("yield")
	joinSQL      = compile("join")
	promiseSQL   = compile("promise")
	dropSQL      = compile("drop")
	passSQL      = compile("pass")
	imposeSQL    = compile("impose")
	keepSQL      = compile("keep")
	revokeSQL    = compile("revoke")
	setTextSQL   = compile("checkpoint")
	textSQL      = compile("checkpointed")
	changeSQL    = sync.OnceValue(func() string { return text("change") })
	jvmChangeSQL = sync.OnceValue(func() string { return text("jvmchange") })
	jvmLookSQL   = compile("jvmlook")
)

var (
	comment   = lazily(`(?m)--.*$`)
	spaces    = lazily(`[ \n]+`)
	parameter = lazily(`:([a-z_]+)`)
	isolation = lazily(`/\*M!.*?'READ-COMMITTED',`)
	word      = lazily(`\b(NOW_US|NOW_MS|NOBODYS|LF|TAB)\b`)
	macro     = lazily(`\b(POS|BEFORE|WITHOUT|LIVING)\((:\w+)\)`)
)

// words are what the files write for longer expressions.
var words = map[string]string{
	// The server's clock when the statement began. It is made of UTC alone, so
	// that no time zone, the session's or the server's, has a part in it; what
	// UNIX_TIMESTAMP makes of a local time repeats an hour each autumn.
	"NOW_US":  nowUS,
	"NOW_MS":  nowMS,
	"NOBODYS": "(l.owner_id = '' OR l.released = 1 OR l.end_at < " + nowMS + ")",
	// As they are: what a backslash means depends on the sql_mode.
	"LF":  "'\n'",
	"TAB": "'\t'",
}

const (
	nowUS = "TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))"
	nowMS = "(" + nowUS + " DIV 1000)"
)

// macros: the queue is a text of lines, the waiter's id first.
var macros = map[string]string{
	// Where the line of a waiter begins, 0 if it has none.
	"POS": "LOCATE(CONCAT(LF, $, TAB), CONCAT(LF, l.waiters))",
	// The lines in front of it.
	"BEFORE": "LEFT(l.waiters, POS($) - 1)",
	// The queue without it.
	"WITHOUT": "INSERT(l.waiters, POS($), LOCATE(LF, l.waiters, POS($)) - POS($) + 1, '')",
	// It has not left for good.
	"LIVING": "(LOCATE(CONCAT(LF, $, LF), CONCAT(LF, l.spent)) = 0 AND NOT (l.owner_id = $ AND l.released = 1))",
}

func lazily(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

func read(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(b)
}

func text(name string) string {
	s := strings.TrimSpace(spaces().ReplaceAllString(comment().ReplaceAllString(read(name), ""), " "))
	for macro().MatchString(s) {
		s = macro().ReplaceAllStringFunc(s, func(m string) string {
			parts := macro().FindStringSubmatch(m)
			return strings.ReplaceAll(macros[parts[1]], "$", parts[2])
		})
	}
	return word().ReplaceAllStringFunc(s, func(w string) string { return words[w] })
}

func compile(name string) statement {
	return sync.OnceValue(func() compiled {
		s := compiled{text: text(name)}
		s.text = parameter().ReplaceAllStringFunc(s.text, func(p string) string {
			s.names = append(s.names, p[1:])
			return "?"
		})
		return s
	})
}

func (s compiled) values(a args) []any {
	v := make([]any, len(s.names))
	for i, n := range s.names {
		value, ok := a[n]
		if !ok {
			panic(fmt.Sprintf("mysql: no value for :%s", n))
		}
		v[i] = value
	}
	return v
}

// Schema is what creates the tables, for whoever may.
func Schema() string { return schemaSQL() }
