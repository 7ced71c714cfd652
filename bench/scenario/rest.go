package scenario

func rates() []Scenario   { return nil }
func outages() []Scenario { return nil }
func shared() []Scenario  { return nil }
