{{ config(materialized='table', file_format='parquet') }}
select
    get_json_object(cast(payload as string), '$.customer') as customer,
    count(*) as orders
from orders_topic
group by 1
