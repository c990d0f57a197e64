"""What users write: row models, sheets, pipelines, and what is made of them."""
