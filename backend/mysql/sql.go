package mysql

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed sql/*.sql
var files embed.FS

// statement is the text of a file in sql/ with its named parameters in order.
type statement struct {
	text  string
	names []string
}

// args are the values of a statement's parameters by name.
type args map[string]any

var (
	schemaSQL    = read("schema")
	sessionSQL   = text("session")
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
	imposeSQL    = compile("impose")
	revokeSQL    = compile("revoke")
	changeSQL    = text("change")
	jvmChangeSQL = text("jvmchange")
	jvmLookSQL   = compile("jvmlook")
)

var (
	comment   = regexp.MustCompile(`(?m)--.*$`)
	spaces    = regexp.MustCompile(`[ \n]+`)
	parameter = regexp.MustCompile(`:([a-z_]+)`)
	isolation = regexp.MustCompile(`/\*M!.*?'READ-COMMITTED',`)
	word      = regexp.MustCompile(`\b(NOW_US|NOW_MS|NOBODYS|LF|TAB)\b`)
	macro     = regexp.MustCompile(`\b(POS|BEFORE|WITHOUT|LIVING)\((:\w+)\)`)
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

func read(name string) string {
	b, err := files.ReadFile("sql/" + name + ".sql")
	if err != nil {
		panic(err) // it is part of the program
	}
	return string(b)
}

func text(name string) string {
	s := strings.TrimSpace(spaces.ReplaceAllString(comment.ReplaceAllString(read(name), ""), " "))
	for macro.MatchString(s) {
		s = macro.ReplaceAllStringFunc(s, func(m string) string {
			parts := macro.FindStringSubmatch(m)
			return strings.ReplaceAll(macros[parts[1]], "$", parts[2])
		})
	}
	return word.ReplaceAllStringFunc(s, func(w string) string { return words[w] })
}

func compile(name string) statement {
	s := statement{text: text(name)}
	s.text = parameter.ReplaceAllStringFunc(s.text, func(p string) string {
		s.names = append(s.names, p[1:])
		return "?"
	})
	return s
}

func (s statement) values(a args) []any {
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
func Schema() string { return schemaSQL }
