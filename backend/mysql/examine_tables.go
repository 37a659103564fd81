package mysql

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/simba-lock/simba/lease"
)

// layout judges the tables, and what the account may do with them.
func (e *exam) layout(ctx context.Context) error {
	rows, err := e.l.all(ctx, `SELECT LOWER(table_name), COALESCE(engine, table_type) FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name IN ('simba_mutex', 'simba_lease') ORDER BY table_name`)
	if err != nil {
		return e.withheld("tables", err)
	}
	e.tables = make(map[string]bool)
	var foreign []string
	for _, r := range rows {
		e.tables[r[0]] = true
		if r[1] != "InnoDB" {
			foreign = append(foreign, r[0]+": "+r[1])
		}
	}
	e.ofRights()
	switch {
	case len(e.tables) == 0:
		return nil
	case len(foreign) > 0:
		e.find("engine", strings.Join(foreign, ", "),
			"a crash may lose what was acknowledged or both rows of a mutex may disagree: ALTER TABLE … ENGINE=InnoDB")
	default:
		e.find("engine", "InnoDB", "")
	}
	return e.ofColumns(ctx)
}

func (e *exam) ofRights() {
	var missing []string
	for _, table := range []string{"simba_mutex", "simba_lease"} {
		if !e.tables[table] {
			missing = append(missing, table)
		}
	}
	need := []string{"SELECT", "INSERT", "UPDATE"}
	var lacks []string
	for _, right := range need {
		if !e.may(right) {
			lacks = append(lacks, right)
		}
	}
	byHand := "somebody with the right to has to run what `simba doctor --print-schema` prints"
	there := strings.Join(missing, " and ") + " not there yet"
	unknown := e.rights == nil || e.roles && (len(lacks) > 0 || !e.may("CREATE"))
	switch {
	case len(missing) == 0:
		e.find("tables", "simba_mutex and simba_lease are there", "")
	case unknown:
		e.find("tables", there+"; whether this account may make them is not known", "if it may not, "+byHand)
	case !e.may("CREATE"):
		e.find("tables", there+", and this account may not make them", byHand)
	default:
		e.find("tables", there+"; the first run makes them", "")
	}
	switch {
	case e.rights == nil: // the reason was told
	case len(lacks) == 0:
		e.find("rights", strings.Join(need, ", "), "")
	case e.roles:
		e.find("rights", strings.Join(lacks, ", ")+" may come from a role, or not at all", "a run needs them; looking needs SELECT only")
	default:
		e.find("rights", "no "+strings.Join(lacks, ", "),
			fmt.Sprintf("a run needs them, looking needs SELECT only: GRANT %s ON %s.* TO …", strings.Join(lacks, ", "), e.b.set.database))
	}
}

// longest is the most that a name or an id has, see [lease.CheckName] and [lease.NewID].
const longest = 128

// room is how long the texts in a column may become.
var room = map[string]int{
	"simba_mutex.mutex": longest, "simba_mutex.owner_id": longest,
	"simba_lease.mutex": longest, "simba_lease.owner_id": longest,
	"simba_lease.promise_id": longest, "simba_lease.embargo_id": longest,
	"simba_lease.birth": 2 * tokenBytes, "simba_lease.info": maxInfo,
	// A thousand waiters, and the ids that are spent.
	"simba_lease.waiters": 1000 * maxInfo, "simba_lease.spent": 100_000 + longest + 1,
	"simba_lease.checkpoint": lease.MaxCheckpoint,
}

func (e *exam) ofColumns(ctx context.Context) error {
	rows, err := e.l.all(ctx, `SELECT CONCAT(LOWER(table_name), '.', LOWER(column_name)), data_type,
			COALESCE(character_maximum_length, 0), COALESCE(collation_name, '')
		FROM information_schema.columns
		WHERE table_schema = DATABASE() AND table_name IN ('simba_mutex', 'simba_lease')`)
	if err != nil {
		return e.withheld("columns", err)
	}
	found := make(map[string]bool)
	var short, folding, narrow []string
	for _, r := range rows {
		column, kind, collation := r[0], r[1], r[3]
		found[column] = true
		if need := room[column]; need > 0 {
			if n, _ := strconv.Atoi(r[2]); n < need {
				short = append(short, fmt.Sprintf("%s takes %d characters, not %d", column, n, need))
			}
			if collation != "" && !strings.HasSuffix(collation, "_bin") && collation != "binary" {
				folding = append(folding, column+" "+collation)
			}
		}
		if strings.HasSuffix(column, "_at") && kind != "bigint" {
			narrow = append(narrow, column+" is "+kind)
		}
	}
	var lacking []string
	for table := range e.tables {
		for _, c := range columns[table] {
			if !found[table+"."+c] {
				lacking = append(lacking, table+"."+c)
			}
		}
	}
	slices.Sort(lacking)
	switch asSchema := "make it as `simba doctor --print-schema` has it"; {
	case len(lacking) > 0:
		e.find("columns", "missing: "+strings.Join(lacking, ", "), "the table is another program's: use another database")
	case len(narrow) > 0:
		e.find("columns", strings.Join(narrow, ", "), "it does not take milliseconds since 1970: "+asSchema)
	case e.tables["simba_lease"] && !found["simba_lease.checkpoint"]:
		e.ofCheckpoint()
	default:
		e.find("columns", "as they should be", "")
	}
	if len(short) > 0 {
		e.find("lengths", strings.Join(short, ", "), "what is longer is refused, never cut: ALTER TABLE … MODIFY, as `simba doctor --print-schema` has it")
	} else {
		e.find("lengths", "everything fits", "")
	}
	if len(folding) > 0 {
		e.find("collation", strings.Join(folding, ", "), "names that differ in case or accents only are refused, never taken for one: "+
			"ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, when nobody owns a mutex")
	} else {
		e.find("collation", "byte by byte", "")
	}
	return nil
}

// ofCheckpoint: only a schedule misses the column.
func (e *exam) ofCheckpoint() {
	advice := ""
	if !e.may("ALTER") {
		advice = "a schedule needs it, and this account may not make it; somebody with the right to has to run: " + addCheckpoint
	}
	e.find("columns", "simba_lease is of an earlier version, without the column checkpoint", advice)
}
