package resolver

// StaticScheme is the scheme of targets that list their endpoints.
const StaticScheme = "mlb-static"
