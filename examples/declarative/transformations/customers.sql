-- SQL can use the tables that Python defines.
CREATE MATERIALIZED VIEW customers AS
SELECT get_json_object(payload, '$.customer') AS customer, count(*) AS orders
FROM messages
GROUP BY 1
