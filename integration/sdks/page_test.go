package sdks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const page = "../../docs/sdks.md"

// TestPage: each piece of code on the page stands in a file of this package, which compiles and runs it, and each SDK has a
// row of the table and a recipe.
func TestPage(t *testing.T) {
	text := read(t, page)
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, name := range files {
		code.WriteString(read(t, name))
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	var quoted strings.Builder
	for _, b := range blocks {
		if quoted.WriteString(b[1]); !strings.Contains(code.String(), b[1]) {
			t.Errorf("no file has this code of the page:\n%s", b[1])
		}
	}
	for row, recipe := range map[string]string{
		"go-github": "newGitHub", "openai-go": "newOpenAI", "anthropic-sdk-go": "newAnthropic", "aws-sdk-go-v2": "newAWS",
		"google-api-go-client": "newGoogle", "azcore": "azureOptions", "stripe-go": "newStripe", "slack-go": "newSlack",
		"discordgo": "newDiscord", "Shopify": "queryShopify", "elastic": "newElastic", "sentry-go": "newSentry",
	} {
		if n := strings.Count(text, "\n| ["+row); n != 1 {
			t.Errorf("%s has %d rows of the table", row, n)
		}
		if !strings.Contains(quoted.String(), "func "+recipe+"(") || !strings.Contains(code.String(), " "+recipe+"(") {
			t.Errorf("%s: %s is not quoted, or nobody calls it", row, recipe)
		}
	}
}

// read returns what is in a file.
func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
